// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_rows.h: what the rows of decode and of prefill attention have in common.
#ifndef KERNEL_CUDA_ATTENTION_ROWS_H
#define KERNEL_CUDA_ATTENTION_ROWS_H

#include "kernel/cuda/describe.h"

enum { ATTENTION_DIM_MULTIPLE = 16, ATTENTION_DIM_MAX = 256 };

// Sink pages in bfloat16 may stand beside formats of fewer bits whose vectors are not rotated.
#define ATTENTION_SINK_BESIDE \
    (CUDA_ALL_KV & ~(DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16) | DTYPE_BIT(INT4_TOKEN)))

// Operands of products are bfloat16: queries and results have no more bits either.
#define ATTENTION_ROW                                                                                         \
    .device = DEVICE_CUDA, .op = OP_ATTENTION, .sink = DTYPE_BIT(BF16), .sink_beside = ATTENTION_SINK_BESIDE, \
    .tolerance = 2e-2f

// The parameters of all kernels; the rest is zero.
struct cuda_attention attention_params(const struct attention_args *args);

#endif
