// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_decode.h: which steps are small ones to decode attention (attention_decode.c), and where decode
// ends and prefill begins.
#ifndef KERNEL_CUDA_ATTENTION_DECODE_H
#define KERNEL_CUDA_ATTENTION_DECODE_H

#include "kernel/cuda/attention_split.h"
#include "kernel/kernel.h"

enum { DECODE_ROWS_MAX = SPLIT_ROWS_MAX }; // of a sequence: one with more is prefill's

// Whether decode attention has no more work tiles than the GPU has SMs in such a step, so that every CTA can have an SM
// alone: the load KERNEL_DECODE_SMALL. `kernel` is the row bound to KERNEL_ROWS_1; false of rows of other families.
bool attention_decode_is_small(const struct kernel *kernel, const struct attention_args *args,
                               const struct cuda_shape *shape);

#endif
