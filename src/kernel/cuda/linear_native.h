// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_native.h: products of NVFP4 with NVFP4: how a matrix lies, and what its x is rounded by.
#ifndef KERNEL_CUDA_LINEAR_NATIVE_H
#define KERNEL_CUDA_LINEAR_NATIVE_H

#include "kernel/nvfp4.h"

// x (rows, in) in bfloat16 becomes codes and scales (kernel/nvfp4.h); rows that are not there become zeros.
struct cuda_linear_x {
    const int32_t *rows;
    const uint16_t *x;
    uint8_t *codes, *scales;
    int32_t in;
};

// Codes, then, at a multiple that every reader is content with, scales.
MINIFLOAT size_t linear_native_scales(int rows, int in) { return ((size_t)rows * (size_t)(in / 2) + 255) / 256 * 256; }

#ifndef __CUDACC__
#include "kernel/kernel.h"

extern const struct kernel_packing linear_native_packing;
#endif

#endif
