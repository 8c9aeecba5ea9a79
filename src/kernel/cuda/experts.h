// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/experts.h: what the kernels for mixtures of experts are called with, the same in C and in CUDA C
// (kernel/op.h says what the parts mean). How many pairs an expert has is known on the device alone: a grid is made for
// as many tiles of pairs as there may be at most, and each block finds its own.
#ifndef KERNEL_CUDA_EXPERTS_H
#define KERNEL_CUDA_EXPERTS_H

#include "kernel/cuda/linear.h"

struct cuda_routes {
    int32_t *expert;
    float *weight; // (rows, top_k)
    int32_t *first, *pair;
    int32_t experts, top_k;
};

struct cuda_route {
    const int32_t *rows;
    const float *logits, *bias;
    struct cuda_routes routes;
    int32_t score, groups, topk_group, group_best, normalise;
    float scale;
};

struct cuda_experts {
    const int32_t *rows;
    const uint16_t *x; // bfloat16
    struct cuda_routes routes;
    int32_t in, x_per_slot, outputs;
    struct cuda_experts_output {
        const uint8_t *weight; // in the row's packing
        uint64_t bytes;        // from one expert's to the next one's
        const float *scales, *bias;
        uint16_t *y; // bfloat16
        int32_t rows;
        float scale;
    } output[2];
};

struct cuda_combine {
    const int32_t *rows;
    const uint16_t *x;
    void *out; // f32 or bfloat16
    const float *weight;
    int32_t top_k, width, f32_out;
};

enum {
    ROUTE_WARPS = 8, // tokens of a block
    EXPERTS_SKINNY_WARPS = 8,
    EXPERTS_SKINNY_PAIRS = 8,
    EXPERTS_WIDE_WARPS = 4,
    EXPERTS_WIDE_PAIRS = 64,
    EXPERTS_WIDE_GROUPS = 2,
    EXPERTS_FLOAT_BYTES = LINEAR_ROWS * LINEAR_RECORD * 2, // of a record of 16-bit floats
};

// How many records of so many bytes a warp has in shared memory.
LINEAR_FUNCTION int experts_skinny_stages(int bytes) { return bytes <= 2560 ? 4 : 2; }
LINEAR_FUNCTION int experts_wide_stages(int bytes) { return bytes <= 2048 ? 3 : 2; }

LINEAR_FUNCTION int experts_skinny_bytes(int bytes)
{
    return EXPERTS_SKINNY_WARPS * (experts_skinny_stages(bytes) * bytes + LINEAR_ROWS * EXPERTS_SKINNY_PAIRS * 4);
}

LINEAR_FUNCTION int experts_wide_stage_bytes(int bytes)
{
    return EXPERTS_WIDE_WARPS * EXPERTS_WIDE_GROUPS * bytes + EXPERTS_WIDE_PAIRS * LINEAR_RECORD * 2;
}

LINEAR_FUNCTION int experts_wide_bytes(int bytes)
{
    return experts_wide_stages(bytes) * experts_wide_stage_bytes(bytes);
}

#ifndef __CUDACC__
struct cuda_routes cuda_routes_make(const struct routes *routes);
#endif

#endif
