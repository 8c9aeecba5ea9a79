// SPDX-License-Identifier: Apache-2.0
// model/tensor_source.h: matrices that lie in files as no kernel reads them: codes, scales and zero points in tensors
// of their
// own, experts one by one. Such a matrix is a tensor like any other, of a shape and in a format that kernels do read,
// whose bytes are made when it is loaded: row by row, and exactly wherever that format can say the same.
#ifndef MODEL_TENSOR_SOURCE_H
#define MODEL_TENSOR_SOURCE_H

#include "base/memory.h"
#include "format/tensor.h"

struct tensor_source {
    // Writes rows [first, first + count) of the tensor in its own dtype. Any thread may do any rows.
    void (*read)(const struct tensor *tensor, int64_t first, int64_t count, void *out);
    // Is what the file holds as `read` expects it? Headers cannot say. NULL: whatever it holds.
    bool (*check)(const struct tensor *tensor, struct error *err);
    const struct tensor *codes, *scales, *zeros, *order, *extents; // what these need of them; the others are NULL
    const struct tensor *const *parts;                             // of a stack, as many as shape[0]
    const char *label;                   // what the file has, in words: "NVFP4 (modelopt)"; NULL: not worth a word
    const char *why;                    // why it is read in a wider format than its codes need, or NULL
    int bits;                           // of a code that is an integer
    bool asymmetric, ordered;           // `zeros`, `order` count; else, where the file has them, they say nothing new
    int zero, zero_bias;                // the code that stands for 0 where that is always the same; what `zeros` lack
    const struct source_detail *detail; // a family's own
    int group, rows_each;               // values of a row, and rows, that share a scale; 0: all of them
    int row_first, row_step;            // the tensor's row r is this one of the codes: first + r * step
    int col_first;                      // of a run of columns: the tensor's first one is this one of the codes
    float factor;                       // of scales that become f16; the matrix's own scale undoes it
};

#define SCALE_FACTOR 256.0f // brings scales of weights, 1e-7 to 100, to where f16 has all its bits

// Rows of a matrix, however it lies; of (count, rows, cols) those of all matrices, one after the other.
void tensor_source_read(const struct tensor *tensor, int64_t first, int64_t count, void *out);
bool tensor_source_check(const struct tensor *tensor, struct error *err);

// Calls `visit` with every tensor of the files that a tensor is made of, or with itself.
void tensor_source_visit(const struct tensor *tensor, void (*visit)(void *context, const struct tensor *of_file),
                  void *context);

// Tensors of one dtype and shape as one, with one more dimension in front.
const struct tensor *tensor_source_stack(struct arena *arena, const char *name, const struct tensor *const *parts, int count);

// Rows [first, first + count) of a matrix, or values of a plain vector, as a tensor of their own.
const struct tensor *tensor_source_rows(struct arena *arena, const struct tensor *tensor, int64_t first, int64_t count);

// Columns [first, first + count) of each row, in whole blocks of the format, of a matrix or of each of several.
const struct tensor *tensor_source_columns(struct arena *arena, const struct tensor *tensor, int64_t first, int64_t count);

// A plain tensor (count, cols, step * rows) as (count, rows, cols): columns first, first + step ... as rows.
const struct tensor *tensor_source_transpose(struct arena *arena, const struct tensor *tensor, int first, int step);

// A plain tensor (count, step * width) as (count, width): values first, first + step ... of each.
const struct tensor *tensor_source_stride(struct arena *arena, const struct tensor *tensor, int first, int step);

// One value as f32: the tensor's, or with `divides` one divided by it. It must be a positive number, and on the side of
// 1 that its meaning makes likely: the two conventions for a scale of NVFP4 are each other's reciprocals.
const struct tensor *tensor_source_global_scale(struct arena *arena, const struct tensor *tensor, bool divides);

// What undoes SCALE_FACTOR.
const struct tensor *tensor_source_unscale(struct arena *arena);

// ---- for the families of forms ----

// One of many, in F32, F16, BF16 or E8M0.
float tensor_source_scale(const struct tensor *scales, int64_t index);
bool tensor_source_check_scales(const struct tensor *tensor, struct error *err); // numbers, each of them

static inline int64_t tensor_rows(const struct tensor *tensor) { return tensor->shape[tensor->rank - 2]; }
static inline int64_t tensor_cols(const struct tensor *tensor) { return tensor->shape[tensor->rank - 1]; }

#endif
