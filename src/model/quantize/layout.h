// SPDX-License-Identifier: Apache-2.0
// model/quantize/layout.h: how published checkpoints spell a format: the tensors that a quantised matrix becomes, and
// what config.json says about it.
//   (1) no layout here needs a scale for activations, which only a run over sample text could give: 4-bit weights are
//       declared as weights alone, 8-bit ones with activations scaled anew for every token
#ifndef MODEL_QUANTIZE_LAYOUT_H
#define MODEL_QUANTIZE_LAYOUT_H

#include <jansson.h>

#include "format/safetensors_write.h"
#include "kernel/ref/gptq.h"
#include "kernel/ref/weight_encode.h"
#include "model/quantize/items.h"
#include "nibble.h"

struct layout {
    enum nibble_weights weights;
    enum nibble_layout layout;
    const char *word; // compressed-tensors' format, or ModelOpt's quant_algo
    weight_encoder *encode;
    gptq_encoder *gptq;
    int bits, block;                      // of a code; values that share a scale, 0: a row
    const char *codes, *scales, *overall; // what comes behind the module's path; overall NULL: there is none
    enum dtype codes_dtype, scales_dtype;
    int scales_rank;      // 1: (rows), 2: (rows, blocks)
    int overall_rank;     // 0: (), 1: (1)
    bool divides;         // by the overall scale
    bool has_activations; // declared as scaled for every token
};

const char *layout_weights_word(enum nibble_weights weights); // "nvfp4"

// NULL with a sentence when the layout has no such format; no quantisation is a layout, too, without encode.
const struct layout *layout_find(enum nibble_weights weights, enum nibble_layout layout, struct error *err);

size_t layout_code_bytes(const struct layout *layout, int64_t cols); // of a row
size_t layout_scale_bytes(const struct layout *layout, int64_t cols);

// Names and shapes of what a matrix becomes: codes, scales and, where the layout has one, the overall scale.
struct layout_entries {
    size_t codes, scales, overall;
};
struct layout_entries layout_add(const struct layout *layout, const struct item *item, struct safetensors_out *out);

// Where the scales of a layer's cache go.
void layout_add_kv(const struct layout *layout, const char *attention, struct safetensors_out *out, size_t entries[2]);

// Puts the declarations into the model's config and, for ModelOpt, into a folder's hf_quant_config.json.
bool layout_declare(const struct layout *layout, const struct items *items, bool kv_scales, json_t *config,
                    const char *folder, struct error *err);

#endif
