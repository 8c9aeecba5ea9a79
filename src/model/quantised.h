// SPDX-License-Identifier: Apache-2.0
// model/quantised.h: a checkpoint's quantisation config (quantization_config in config.json, or hf_quant_config.json):
// which modules are quantised, and with which scheme. Unknown schemes are refused by name.
#ifndef MODEL_QUANTISED_H
#define MODEL_QUANTISED_H

#include <jansson.h>

#include "format/checkpoint.h"
#include "model/weight_layout.h"
#include "model/modules.h"

enum { QUANTISED_SCHEMES_MAX = 32 }; // far above any in use: equal schemes are stored once

struct quantised {
    const char *producer; // "modelopt"
    bool complete;        // every module that is not excluded is quantised; otherwise some may be plain
    bool chosen_only;     // modules without a match in `chosen` are plain; otherwise they have scheme 0
    struct modules excluded, chosen;
    struct scheme schemes[QUANTISED_SCHEMES_MAX]; // indexed by the values of `chosen`
    int scheme_count;
    struct arena *arena;
};

// The quantisation config's JSON object, or NULL.
const json_t *quantised_declaration(const struct checkpoint *checkpoint);

// A key's value; ModelOpt has keys at the top or under "quantization". null counts as absent.
const json_t *quantised_key(const json_t *declaration, const char *key);

// The arena holds what outlives `quantised`. Call quantised_free in any case.
bool quantised_read(struct quantised *quantised, const struct checkpoint *checkpoint, struct arena *arena,
                    struct error *err);
void quantised_free(struct quantised *quantised);

// Finds a module's scheme; NULL if its weights are plain. `class` is Linear or Embedding.
bool quantised_find(const struct quantised *quantised, const char *module, const char *class,
                    const struct scheme **scheme, struct error *err);

// ---- for the files of the quantisation methods ----

bool quantised_read_modelopt(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_compressed(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_fp8(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_fbgemm(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_mxfp4(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_gptq(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_awq(struct quantised *quantised, const json_t *declaration, struct error *err);

// Adds a scheme, unless an equal one exists, and returns its index. scheme.word is without the producer.
bool quantised_add_scheme(struct quantised *quantised, struct scheme scheme, int *number, struct error *err);

// Adds every string of the list under this key with this value; the key may be absent.
bool quantised_add_modules(struct modules *modules, const json_t *object, const char *key, int value,
                           struct error *err);

#endif
