// SPDX-License-Identifier: Apache-2.0
// model/source.h: hyperparameters from either kind of checkpoint. A question names the key of config.json and the key
// of a GGUF (without its architecture prefix); NULL where that kind has none.
#ifndef MODEL_SOURCE_H
#define MODEL_SOURCE_H

#include "base/error.h"
#include "format/checkpoint.h"

struct source {
    const struct checkpoint *checkpoint;
    const json_t *json; // config.json, or its text_config; NULL for GGUF
    const char *prefix; // "llama": GGUF keys are prefix.key
    bool by_layer;      // a GGUF's integer may be a list, one for each layer: the greatest of them is meant
};

// Absent (or null): true and *out untouched.
bool source_int(const struct source *source, const char *json_key, const char *gguf_key, int low, int high, int *out,
                struct error *err);
bool source_real(const struct source *source, const char *json_key, const char *gguf_key, double *out,
                 struct error *err);
bool source_bool(const struct source *source, const char *json_key, bool *out, struct error *err); // config.json only

// Absent is an error that names the key, unless `otherwise` (of config.json, 0: none) stands in.
bool source_need_int(const struct source *source, const char *json_key, const char *gguf_key, int low, int high,
                     int otherwise, int *out, struct error *err);

// A GGUF's integer for one layer, from a list or one for all; absent: true and *out untouched.
bool source_int_of_layer(const struct source *source, const char *gguf_key, int layer, int low, int high, int *out,
                         struct error *err);

const struct gguf_value *source_gguf(const struct source *source, const char *gguf_key); // NULL when absent

#endif
