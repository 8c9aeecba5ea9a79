// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_native.cu: rounds activations for products of NVFP4 with NVFP4 (kernel/nvfp4.h).
#include "kernel/cuda/common.cuh"
#include "kernel/cuda/linear_native.h"

// A thread has one run; rows are y of the grid, up to whole tiles of scales.
extern "C" __global__ void __launch_bounds__(128) linear_x_nvfp4(const __grid_constant__ struct cuda_linear_x p)
{
    kernel_begin();
    int run = (int)(blockIdx.x * blockDim.x + threadIdx.x), row = (int)blockIdx.y, runs = p.in / NVFP4_RUN;
    if (run >= runs)
        return;
    uint8_t *scale = p.scales + nvfp4_scale_at(row, run, runs);
    *scale = 0;
    if (row >= *p.rows)
        return;
    const uint16_t *from = p.x + (size_t)row * (size_t)p.in + (size_t)run * NVFP4_RUN;
    float x[NVFP4_RUN];
    bf16_load(from, x);
    bf16_load(from + 8, x + 8);
    union {
        uint8_t bytes[NVFP4_RUN / 2];
        uint2 words;
    } codes;
    *scale = nvfp4_round(x, codes.bytes);
    *(uint2 *)(p.codes + ((size_t)row * (size_t)p.in + (size_t)run * NVFP4_RUN) / 2) = codes.words;
}
