// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_decode.h: the launches of decode attention, for the rows of attention (attention_prefill.c):
// sequences with few rows in a step are decode's.
#ifndef KERNEL_CUDA_ATTENTION_DECODE_H
#define KERNEL_CUDA_ATTENTION_DECODE_H

#include "kernel/cuda/attention_split.h"
#include "kernel/kernel.h"

enum { DECODE_ROWS_MAX = SPLIT_ROWS_MAX }; // of a sequence

// For sequences with at most `rows_max` rows. Returns how many calls there are, one or two.
int attention_decode_calls(const struct attention_args *args, const struct cuda_shape *shape, int rows_max,
                           struct cuda_call *calls);

// What those calls need in args->scratch.
size_t attention_decode_scratch(const struct kernel_extent *extent);

#endif
