// SPDX-License-Identifier: Apache-2.0
// model/tensor_lookup_internal.h: what the files that look for weights share: find.c, find_stored.c, find_experts.c,
// find_unused.c.
#ifndef MODEL_TENSOR_LOOKUP_INTERNAL_H
#define MODEL_TENSOR_LOOKUP_INTERNAL_H

#include "model/tensor_lookup.h"
#include "model/quantised.h"

enum { FIND_MODULE_BYTES_MAX = 160, FIND_NAME_BYTES_MAX = TENSOR_NAME_BYTES_MAX + 1 };

struct find {
    struct quantised quantised;
    const struct scheme *expert_scheme; // of expert 0, and so of all
    int expert;                         // whose number stands for '*', -1: nobody's
    bool *used;                         // (tensors of the checkpoint)
};

// find.c

void find_module_of(const struct graph *graph, enum weight_name name, char out[FIND_MODULE_BYTES_MAX]);
// A suffix follows a dot, unless it begins with '_' or is empty.
void find_name_of(const struct graph *graph, enum weight_name name, const char *suffix, char out[FIND_NAME_BYTES_MAX]);
bool find_is_each(const struct graph *graph, enum weight_name name); // experts have tensors of their own

const struct tensor *find_tensor(const struct graph *graph, enum weight_name name,
                                 const char *suffix); // which is used then; NULL: absent

// "tensor NAME ..." becomes the error, if it is the first; returns NULL.
const struct tensor *find_trouble(struct graph *graph, enum weight_name name, const char *suffix, const char *format,
                                  ...) __attribute__((format(printf, 4, 5)));
bool find_check_shape(struct graph *graph, enum weight_name name, const char *suffix, const struct tensor *tensor,
                      const struct tensor *wanted);

// Of `wanted` tensors shape and, where they must be imagined, type count.
struct tensor find_shape(const struct graph *graph, int rank, int64_t first, int64_t second, int64_t third);
const struct tensor *find_plain(struct graph *graph, enum weight_name name, struct tensor wanted);
const struct tensor *find_floats(struct graph *graph, enum weight_name name, const char *suffix, struct tensor wanted);
const struct tensor *find_new(struct graph *graph, enum weight_name name, const char *suffix, struct tensor shape);

// find_stored.c

// What the checkpoint declares of a module, NULL: its weights are plain. False: the graph has failed.
bool find_scheme(struct graph *graph, enum weight_name name, const struct scheme **scheme);

// A plain weight has no tensors of a scheme beside it.
bool find_check_plain(struct graph *graph, enum weight_name name);

// A quantised matrix: tensor and scale.
void find_quantised(struct graph *graph, enum weight_name name, const struct scheme *scheme, struct tensor wanted,
                 struct op_matrix *matrix);

// What tensors of a scheme are read as.
struct tensor find_resolve(const struct scheme *scheme, struct tensor wanted, struct tensor_source *source);

// find_kv_scales.c: into the layers.
void find_kv_scales(struct graph *graph);

// find_unused.c: into the model's warnings.
void find_note_unused(struct graph *graph);

#endif
