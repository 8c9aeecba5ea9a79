// SPDX-License-Identifier: Apache-2.0
// model/stored.h: matrices that lie in files as no kernel reads them: codes, scales and zero points in tensors of their
// own, experts one by one. Such a matrix is a tensor like any other, of a shape and in a format that kernels do read,
// whose bytes are made when it is loaded: row by row, and exactly wherever that format can say the same.
#ifndef MODEL_STORED_H
#define MODEL_STORED_H

#include "base/memory.h"
#include "format/tensor.h"

struct stored {
    // Writes rows [first, first + count) of the tensor in its own dtype. Any thread may do any rows.
    void (*read)(const struct tensor *tensor, int64_t first, int64_t count, void *out);
    const struct tensor *codes, *scales, *zeros, *order; // what `read` needs of them; the others are NULL
    int group;                                           // values of a row that share a scale
    const struct tensor *const *parts;                   // of a stack, as many as shape[0]
};

// Rows of a matrix, however it lies; of (count, rows, cols) those of all matrices, one after the other.
void stored_read(const struct tensor *tensor, int64_t first, int64_t count, void *out);

// Tensors of one dtype and shape as one, with one more dimension in front.
const struct tensor *stored_stack(struct arena *arena, const char *name, const struct tensor *const *parts, int count);

#endif
