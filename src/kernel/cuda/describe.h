// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/describe.h: from an op's arguments to what its kernels are called with.
#ifndef KERNEL_CUDA_DESCRIBE_H
#define KERNEL_CUDA_DESCRIBE_H

#include "kernel/cuda/params.h"
#include "kernel/kernel.h"

// Sets of dtypes by their use, for rows that take all of one.
#define CUDA_BIT_IF_W(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_W ? DTYPE_BIT(id) : 0)
#define CUDA_BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define CUDA_ALL_W (0 DTYPES(CUDA_BIT_IF_W))
#define CUDA_ALL_KV (0 DTYPES(CUDA_BIT_IF_KV))

// Blocks that it takes to do `count` things, `each` in a block; one at least, as a grid must have.
unsigned cuda_blocks(int64_t count, int64_t each);

// One launch without dynamic shared memory.
struct cuda_call cuda_call_make(const char *function, unsigned grid_x, unsigned grid_y, unsigned block,
                                const void *params, size_t bytes);

struct cuda_place cuda_place_make(const struct kv_place *place);
struct cuda_state cuda_state_make(const struct state_place *place, size_t part); // at this offset in a layer's state
struct cuda_rope cuda_rope_make(const struct rope_args *rope);
struct cuda_transform cuda_transform_make(const struct transform_args *transform);

#endif
