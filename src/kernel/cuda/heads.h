// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/heads.h: the sizes of heads.cu's launches, for C and CUDA alike.
#ifndef KERNEL_CUDA_HEADS_H
#define KERNEL_CUDA_HEADS_H

enum { HEADS_THREADS = 128, HEADS_ROWS = HEADS_THREADS / 2 }; // of a block, a warp for each sixteen rows
enum { HEADS_FEW_TOKENS = 8, HEADS_MANY_TOKENS = 64 };        // that a warp has

#endif
