// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/per_head_linear.h: the sizes of per_head_linear.cu's launches, for C and CUDA alike.
#ifndef KERNEL_CUDA_PER_HEAD_LINEAR_H
#define KERNEL_CUDA_PER_HEAD_LINEAR_H

enum { PER_HEAD_THREADS = 128, PER_HEAD_ROWS = PER_HEAD_THREADS / 2 }; // of a block, a warp for each sixteen rows
enum { PER_HEAD_SKINNY_TOKENS = 8, PER_HEAD_WIDE_TOKENS = 64 };        // that a warp has

#endif
