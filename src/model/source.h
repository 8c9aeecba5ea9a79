// SPDX-License-Identifier: Apache-2.0
// model/source.h: hyperparameters from config.json or GGUF metadata. A lookup names the key in config.json and the key
// in GGUF (without its architecture prefix), or NULL if that format has none.
#ifndef MODEL_SOURCE_H
#define MODEL_SOURCE_H

#include "base/error.h"
#include "format/checkpoint.h"

struct source {
    const struct checkpoint *checkpoint;
    const json_t *json; // config.json, or its text_config; NULL for GGUF
    const char *prefix; // "llama": GGUF keys are prefix.key
    bool by_layer;      // a GGUF integer may be an array with a value per layer: source_int takes the largest
};

// An absent (or null) key leaves *out unchanged and returns true.
bool source_int(const struct source *source, const char *json_key, const char *gguf_key, int low, int high, int *out,
                struct error *err);
bool source_real(const struct source *source, const char *json_key, const char *gguf_key, double *out,
                 struct error *err);
bool source_bool(const struct source *source, const char *json_key, bool *out, struct error *err); // config.json alone

// A required integer; if config.json lacks it, `otherwise` is used unless it is 0.
bool source_need_int(const struct source *source, const char *json_key, const char *gguf_key, int low, int high,
                     int otherwise, int *out, struct error *err);

// A GGUF integer for one layer, from an array or a value for all layers. An absent key leaves *out unchanged.
bool source_int_of_layer(const struct source *source, const char *gguf_key, int layer, int low, int high, int *out,
                         struct error *err);

const struct gguf_value *source_gguf(const struct source *source, const char *gguf_key); // NULL when absent

#endif
