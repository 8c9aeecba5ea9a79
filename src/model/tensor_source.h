// SPDX-License-Identifier: Apache-2.0
// model/tensor_source.h: tensors that are converted while they are loaded, because no kernel reads the file's layout:
// codes, scales and zero points in separate tensors, experts one by one, fused or interleaved rows. Such a tensor has a
// shape and dtype that kernels read, and a source that produces its rows. The conversion is exact wherever the dtype
// allows.
#ifndef MODEL_TENSOR_SOURCE_H
#define MODEL_TENSOR_SOURCE_H

#include "base/memory.h"
#include "format/tensor.h"

struct tensor_source {
    // Writes rows [first, first + count) in the tensor's dtype. Thread-safe.
    void (*read)(const struct tensor *tensor, int64_t first, int64_t count, void *out);
    // Checks the data (not only headers) before `read`; NULL if any data is valid.
    bool (*check)(const struct tensor *tensor, struct error *err);
    const struct tensor *codes, *scales, *zeros, *order, *extents; // inputs of `read` and `check`; unused ones are NULL
    const struct tensor *const *parts;                             // a stack's parts: shape[0] of them
    const char *label;                  // the file's scheme for messages, "NVFP4 (modelopt)", or NULL
    const char *why;                    // why a wider dtype than the codes' was chosen, or NULL
    int bits;                           // bits of integer codes
    bool asymmetric, ordered;           // use `zeros`, `order`; otherwise they are redundant if present
    int zero, zero_bias;                // the constant zero point of symmetric codes; added to `zeros`
    const struct source_detail *detail; // private to the file that made the source
    int group, rows_each;               // the scale's block: values of a row, and rows; 0: all
    int row_first, row_step;            // row r of the tensor is row first + r * step of the codes
    int col_first;                      // column 0 of the tensor is this column of the codes
    float factor;                       // of scales converted to f16; undone by the matrix's scale
};

#define SCALE_FACTOR 256.0f // moves weight scales of 1e-7 to 100 into f16's normal range

// Reads rows of a tensor with or without a source; a (count, rows, cols) tensor has count * rows rows.
void tensor_source_read(const struct tensor *tensor, int64_t first, int64_t count, void *out);
bool tensor_source_check(const struct tensor *tensor, struct error *err);

// Visits every file tensor that a tensor is made from, or the tensor itself.
void tensor_source_visit(const struct tensor *tensor, void (*visit)(void *context, const struct tensor *of_file),
                         void *context);

// torch.stack: tensors of one dtype and shape as one, with a new first dimension.
const struct tensor *tensor_source_stack(struct arena *arena, const char *name, const struct tensor *const *parts,
                                         int count);

// A slice of rows of a matrix, or of values of a plain vector.
const struct tensor *tensor_source_rows(struct arena *arena, const struct tensor *tensor, int64_t first, int64_t count);

// A slice of columns, in whole blocks of the dtype.
const struct tensor *tensor_source_columns(struct arena *arena, const struct tensor *tensor, int64_t first,
                                           int64_t count);

// A plain (count, cols, step * rows) tensor, strided and transposed: columns first, first + step ... become rows of
// (count, rows, cols).
const struct tensor *tensor_source_transpose(struct arena *arena, const struct tensor *tensor, int first, int step);

// A plain (count, step * width) tensor, strided: values first, first + step ... of each row.
const struct tensor *tensor_source_stride(struct arena *arena, const struct tensor *tensor, int first, int step);

// NVFP4's global scale as f32, or its reciprocal if `divides`. The value must be positive and plausible: the two
// conventions (scale, divisor) are reciprocals, and a value on the wrong side of 1 is refused.
const struct tensor *tensor_source_global_scale(struct arena *arena, const struct tensor *tensor, bool divides);

// A scale of 1 / SCALE_FACTOR.
const struct tensor *tensor_source_unscale(struct arena *arena);

// ---- for the implementations ----

// A tensor with this source; `shape` has the name, dtype and shape.
const struct tensor *tensor_source_new(struct arena *arena, struct tensor shape, struct tensor_source source);
bool tensor_source_check_codes(const struct tensor *tensor, struct error *err); // checks source->codes

// One scale, stored as F32, F16, BF16 or E8M0.
float tensor_source_scale(const struct tensor *scales, int64_t index);
bool tensor_source_check_scales(const struct tensor *tensor, struct error *err); // all scales are finite and in range

static inline int64_t tensor_rows(const struct tensor *tensor) { return tensor->shape[tensor->rank - 2]; }
static inline int64_t tensor_cols(const struct tensor *tensor) { return tensor->shape[tensor->rank - 1]; }

#endif
