// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear.h: what the files of linear share on the host, and what its kernels are called with on top of
// struct cuda_linear.
#ifndef KERNEL_CUDA_LINEAR_H
#define KERNEL_CUDA_LINEAR_H

#include "kernel/cuda/linear_packed.h"
#include "kernel/cuda/params.h"

// Few tokens. Of a block's warps but the last, `k_split` are side by side along k; others have other rows.
struct cuda_linear_few {
    struct cuda_linear linear;
    int32_t k_split;
    int32_t x_shared;          // whether x is kept in shared memory, else it is read where it is
};

enum { LINEAR_FEW_TOKENS = 8, LINEAR_FEW_WARPS_MAX = 16 };

// How many records, or pairs of them, a warp has in shared memory.
LINEAR_FUNCTION int linear_few_stages(int bytes)
{
    return bytes <= 2048 ? 4 : bytes <= 2560 ? 3 : 2;
}

// Many tokens.
struct cuda_linear_many {
    struct cuda_linear linear;
    uint8_t *x;                // sm_90a: arranged for wgmma
    float *partials;           // (split, token, row of all matrices), where there is more than one split
    int32_t splits, stages, tokens; // stages and tokens of a tile: sm_90a
};

enum {
    LINEAR_MANY_WARPS_MAX = 8, LINEAR_MANY_WARP_ROWS = 32, LINEAR_MANY_STAGES = 3,
    LINEAR_SPLIT_ROWS_MAX = 132 * 256, // of all parts: 256 for each multiprocessor of an H100
    LINEAR_SPLIT_TOKENS_MAX = 128,
};

// Where a warp turns its sums around, of so many groups of sixteen rows.
LINEAR_FUNCTION int linear_turned_bytes(int groups, int tokens)
{
    return tokens * (groups * LINEAR_ROWS + 4) * 4;
}

enum { LINEAR_WGMMA_TOKENS_MAX = 256, LINEAR_WGMMA_STAGES_MAX = 8, LINEAR_WGMMA_ALIGNMENT = 1024 };

// Weights of sixteen rows per warp and x of the tokens, one record of each.
LINEAR_FUNCTION int linear_wgmma_stage_bytes(int record_bytes, int warps, int tokens)
{
    return (warps * record_bytes + 1023) / 1024 * 1024 + tokens * LINEAR_RECORD * 2;
}

#ifndef __CUDACC__
#include "kernel/kernel.h"

//    format       kind        of those of kernel/split.h, then all
#define LINEAR_SPLIT(X)        \
    X(Q4_0,       int4_32)     \
    X(Q4_1,       int4_32m)    \
    X(Q5_0,       int5_32m)    \
    X(Q5_1,       int5_32m)    \
    X(Q8_0,       int8_32)     \
    X(Q2_K,       int2_16m)    \
    X(Q3_K,       int3_16)     \
    X(Q4_K,       int4_32m)    \
    X(Q5_K,       int5_32m)    \
    X(Q6_K,       int6_16)     \
    X(IQ4_NL,     int8_32)     \
    X(IQ4_XS,     int8_32)     \
    X(MXFP4_GGUF, e2m1_32)     \
    X(NVFP4_GGUF, e2m1_16)
#define LINEAR_FORMATS(X) LINEAR_SPLIT(X) X(FP8_32, e4m3_32)

extern const struct kernel_packing linear_packing; // floats stay as they are

enum linear_kind linear_kind_of(enum dtype dtype); // LINEAR_KIND_COUNT: floats
size_t linear_group_bytes(enum linear_kind kind, int cols);
#endif

#endif
