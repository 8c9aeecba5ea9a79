// SPDX-License-Identifier: Apache-2.0
// model/quantised.h: what a checkpoint declares of its quantised modules, in config.json or hf_quant_config.json: for
// each the scheme in which its weights lie. A scheme that nibble does not read is refused by its name.
#ifndef MODEL_QUANTISED_H
#define MODEL_QUANTISED_H

#include <jansson.h>

#include "format/checkpoint.h"
#include "model/weight_layout.h"
#include "model/modules.h"

enum { QUANTISED_SCHEMES_MAX = 32 }; // far above any in use: a scheme counts once, however many modules have it

struct quantised {
    const char *producer; // "modelopt"
    bool complete;        // what it does not leave out is quantised; else some may be plain after all
    bool chosen_only;     // modules that `chosen` has no scheme for are plain; else they have the first
    struct modules excluded, chosen;
    struct scheme schemes[QUANTISED_SCHEMES_MAX]; // the values of `chosen`
    int scheme_count;
    struct arena *arena;
};

// Where the keys are that say how the model is quantised, or NULL.
const json_t *quantised_declaration(const struct checkpoint *checkpoint);

// Of keys that ModelOpt has at the top or one level down. Null counts as absent.
const json_t *quantised_key(const json_t *declaration, const char *key);

// The arena is for what must outlive it. To be freed in any case.
bool quantised_read(struct quantised *quantised, const struct checkpoint *checkpoint, struct arena *arena,
                    struct error *err);
void quantised_free(struct quantised *quantised);

// *scheme is NULL for a module whose weights are plain. Its class is Linear or Embedding.
bool quantised_find(const struct quantised *quantised, const char *module, const char *class,
                    const struct scheme **scheme, struct error *err);

// ---- for the producers' files ----

bool quantised_read_modelopt(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_compressed(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_fp8(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_fbgemm(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_mxfp4(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_gptq(struct quantised *quantised, const json_t *declaration, struct error *err);
bool quantised_read_awq(struct quantised *quantised, const json_t *declaration, struct error *err);

// The number of a scheme like this, which is added if it is new. Its word is given without the producer.
bool quantised_add_scheme(struct quantised *quantised, struct scheme scheme, int *number, struct error *err);

// Every text of a list under this key, as `value`; absent: none.
bool quantised_add_modules(struct modules *modules, const json_t *object, const char *key, int value,
                           struct error *err);

#endif
