// SPDX-License-Identifier: Apache-2.0
// model/quantize/layout.h: the output layouts (ModelOpt, compressed-tensors): the tensors of a quantised matrix, and
// the quantisation config.
//   (1) no layout here needs static activation scales, which need calibration: 4-bit weights are declared weight-only,
//       8-bit weights with dynamic per-token activation scales
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
    int bits, block;                      // bits of a code; values per scale, 0: a row
    const char *codes, *scales, *overall; // tensor suffixes; overall is NULL if there is no global scale
    enum dtype codes_dtype, scales_dtype;
    int scales_rank;      // 1: (rows), 2: (rows, blocks)
    int overall_rank;     // 0: (), 1: (1)
    bool divides;         // the global scale is a divisor
    bool has_activations; // declares dynamic per-token activations
};

const char *layout_weights_word(enum nibble_weights weights); // "nvfp4"

// NULL and an error if the layout does not have the format. No quantisation is a layout without encode.
const struct layout *layout_find(enum nibble_weights weights, enum nibble_layout layout, struct error *err);

size_t layout_code_bytes(const struct layout *layout, int64_t cols); // of a row
size_t layout_scale_bytes(const struct layout *layout, int64_t cols);

// Declares a matrix's tensors: codes, scales and perhaps a global scale.
struct layout_entries {
    size_t codes, scales, overall;
};
struct layout_entries layout_add(const struct layout *layout, const struct item *item, struct safetensors_out *out);

// Declares a layer's KV cache scales.
void layout_add_kv(const struct layout *layout, const char *attention, struct safetensors_out *out, size_t entries[2]);

// Adds the quantisation config to config.json and, for ModelOpt, writes hf_quant_config.json.
bool layout_declare(const struct layout *layout, const struct items *items, bool kv_scales, json_t *config,
                    const char *folder, struct error *err);

#endif
