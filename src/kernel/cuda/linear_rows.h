// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_rows.h: what the tables of linear's rows, and of its grouped form (experts.c), have in common on
// the host. A row launches the functions that it lists, in no other order than its describe says: the first is its
// GEMM, the others prepare x for it or finish what it leaves.
#ifndef KERNEL_CUDA_LINEAR_ROWS_H
#define KERNEL_CUDA_LINEAR_ROWS_H

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/linear.h"
#include "kernel/cuda/rows.h"

// A row of quantised weights: exactly the formats that are packed as its kind, each dequantised in registers.
#define LINEAR_BIT_IF(id, its, kind) | (LINEAR_##its == LINEAR_##kind ? DTYPE_BIT(id) : 0)
#define LINEAR_WEIGHTS(kind) (0 LINEAR_FORMATS(LINEAR_BIT_IF, kind))
#define LINEAR_PACKED_ROW(kind) \
    .weights = LINEAR_WEIGHTS(kind), .dequantised = LINEAR_WEIGHTS(kind), .packing = &linear_packing
#define LINEAR_CUDA .device = DEVICE_CUDA, .op = OP_LINEAR, .tolerance = 0.015f

// Rows of 16-bit floats begin where tensor cores' loads can (16 bytes) if they have a multiple of so many columns.
enum { LINEAR_FLOAT_COLUMNS = 8 };
#define LINEAR_SLOW_F32 "multiplied without tensor cores; bfloat16 weights avoid it"
#define LINEAR_SLOW_COLUMNS \
    "multiplied without tensor cores, as its columns are no multiple of 8; weights padded to one avoid it"

enum { LINEAR_WARP = 32, LINEAR_SMALL_BLOCK = 256 };

// The parameters for all matrices of an op. Where gate and up are of different rows, up has the activation and finds
// the gate where its result goes.
struct cuda_linear linear_params(const struct linear_args *args);

// The same for matrix i alone: functions that take one at a time do the gate first, then up.
struct cuda_linear linear_params_at(const struct cuda_linear *all, int i);

// The sum of ceil(rows / tile_rows) over the matrices.
int linear_tiles(const struct cuda_linear *p, int tile_rows);

// Elementwise helpers of a row, by a grid that strides over so many values.
struct cuda_call linear_elementwise(const char *function, const struct cuda_linear *p, int64_t values);

// The norm of x into scratch, which is x from then on.
struct cuda_call linear_normed(const char *function, struct cuda_linear *p, const struct cuda_shape *shape);

// x as float16 at `to`, which is x from then on.
struct cuda_call linear_converted(const char *function, struct cuda_linear *p, void *to,
                                  const struct cuda_shape *shape);

// Adds up split-K partial sums.
struct cuda_call linear_combined(const char *function, const struct cuda_linear_wide *wide,
                                 const struct cuda_shape *shape);

size_t linear_x_bytes(int rows, int width);                         // x of 16 bits, up to where another may begin
size_t linear_x_scratch(const struct kernel_extent *extent);        // for one copy of x
size_t linear_partials_scratch(const struct kernel_extent *extent); // for split-K partial sums

#endif
