// SPDX-License-Identifier: Apache-2.0
// model/tensor_lookup_internal.h: shared by tensor_lookup*.c and kv_scales.c.
#ifndef MODEL_TENSOR_LOOKUP_INTERNAL_H
#define MODEL_TENSOR_LOOKUP_INTERNAL_H

#include "model/tensor_lookup.h"
#include "model/quantised.h"

enum { FIND_MODULE_BYTES_MAX = 160, FIND_NAME_BYTES_MAX = TENSOR_NAME_BYTES_MAX + 1 };

struct find {
    struct quantised quantised;
    const struct scheme *expert_scheme; // of expert 0, used for all experts
    int expert;                         // the number for '*'; -1: none
    bool *used;                         // (tensors of the checkpoint)
};

// tensor_lookup.c

void find_module_of(const struct graph *graph, enum weight_name name, char out[FIND_MODULE_BYTES_MAX]);
// The suffix is appended after a dot, unless it begins with '_' or is empty.
void find_name_of(const struct graph *graph, enum weight_name name, const char *suffix, char out[FIND_NAME_BYTES_MAX]);
bool find_is_each(const struct graph *graph, enum weight_name name); // one tensor per expert

const struct tensor *find_tensor(const struct graph *graph, enum weight_name name,
                                 const char *suffix); // marks the tensor as used; NULL if absent

// Sets the error to "tensor NAME ...", unless there is one already; returns NULL.
const struct tensor *find_trouble(struct graph *graph, enum weight_name name, const char *suffix, const char *format,
                                  ...) __attribute__((format(printf, 4, 5)));
bool find_check_shape(struct graph *graph, enum weight_name name, const char *suffix, const struct tensor *tensor,
                      const struct tensor *wanted);

// An expected tensor: its shape and, for imagined weights, its dtype.
struct tensor find_shape(const struct graph *graph, int rank, int64_t first, int64_t second, int64_t third);
const struct tensor *find_plain(struct graph *graph, enum weight_name name, struct tensor wanted);
const struct tensor *find_floats(struct graph *graph, enum weight_name name, const char *suffix, struct tensor wanted);
const struct tensor *find_new(struct graph *graph, enum weight_name name, const char *suffix, struct tensor shape);

// tensor_lookup_source.c

// The module's quantisation scheme, NULL if plain. False if the graph has failed.
bool find_scheme(struct graph *graph, enum weight_name name, const struct scheme **scheme);

// Checks that a plain weight has no tensors of a quantisation scheme.
bool find_check_plain(struct graph *graph, enum weight_name name);

// A quantised matrix: tensor and scale.
void find_quantised(struct graph *graph, enum weight_name name, const struct scheme *scheme, struct tensor wanted,
                    struct op_matrix *matrix);

// Chooses the dtype that a quantised tensor is converted to.
struct tensor find_resolve(const struct scheme *scheme, struct tensor wanted, struct tensor_source *source);

// kv_scales.c: sets the layers' cache scales.
void find_kv_scales(struct graph *graph);

// tensor_lookup_unused.c: adds to the model's warnings.
void find_note_unused(struct graph *graph);

#endif
