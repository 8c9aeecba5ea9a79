// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear.h: what the files of linear share on the host, and what its kernels are called with on top of
// struct cuda_linear.
#ifndef KERNEL_CUDA_LINEAR_H
#define KERNEL_CUDA_LINEAR_H

#include "kernel/cuda/linear_packed.h"
#include "kernel/cuda/params.h"

// Few tokens. Of a block's warps but the last, 2^split_shift are side by side along k; others have other tiles of rows,
// 2^side_shift at a time. The first `tiles_rest` blocks have a tile more than the others.
struct cuda_linear_skinny {
    struct cuda_linear linear;
    int32_t split_shift, side_shift;
    int32_t tiles_each, tiles_rest;
    int32_t x_shared; // whether x is kept in shared memory, else it is read where it is
};

enum { LINEAR_SKINNY_TOKENS = 8, LINEAR_SKINNY_WARPS_MAX = 16 };

// How many records, or pairs of them, a warp has in shared memory.
LINEAR_FUNCTION int linear_skinny_stages(int bytes) { return bytes <= 2048 ? 4 : bytes <= 2560 ? 3 : 2; }

// Many tokens.
struct cuda_linear_wide {
    struct cuda_linear linear;
    float *partials; // sums of parts of k: (split, token, row of all matrices), or as ranges leave them
    int32_t splits;  // into which k is cut, for linear_wide_add; 1: it has nothing to do
    // sm_90a:
    int32_t tokens;             // of a tile
    uint8_t *x;                 // arranged for wgmma
    int32_t ranges, each, rest; // all tiles' records, one after another, are cut into: `each`, and `rest` left over
    int32_t launch;             // of those of an op
    int32_t *left;              // by range: the launch whose sums it has left; NULL: ranges are splits
};

enum {
    LINEAR_WIDE_WARPS_MAX = 8,
    LINEAR_WIDE_WARP_ROWS = 32,
    LINEAR_WIDE_STAGES = 3,
    LINEAR_SPLIT_ROWS_MAX = 132 * 256, // of all parts: 256 for each multiprocessor of an H100
    LINEAR_SPLIT_TOKENS_MAX = 128,
    LINEAR_WGMMA_TOKENS_MAX = 256,
    LINEAR_WGMMA_STAGES_MAX = 8,
    LINEAR_WGMMA_ALIGNMENT = 1024,
    LINEAR_WGMMA_SHARED_BYTES = 227 * 1024 - 2 * 8 * LINEAR_WGMMA_STAGES_MAX, // of a block of sm_90, but for barriers
    LINEAR_RANGES_MAX = LINEAR_SPLIT_ROWS_MAX / 256,
    LINEAR_LEFT_BYTES = 1024, // `left` of all, filled up
};

// A block's warps have sixteen rows each: fewer of them where their sums take all registers.
LINEAR_FUNCTION int linear_wgmma_warps(int tokens) { return tokens > 128 ? 8 : 16; }

// Weights of all warps and x of the tokens, one record of each.
LINEAR_FUNCTION int linear_wgmma_stage_bytes(int record_bytes, int tokens)
{
    return linear_wgmma_warps(tokens) * record_bytes + tokens * LINEAR_RECORD * 2;
}

// As many as fit: a multiprocessor has one block.
LINEAR_FUNCTION int linear_wgmma_stages(int record_bytes, int tokens)
{
    int fit = (LINEAR_WGMMA_SHARED_BYTES - LINEAR_WGMMA_ALIGNMENT) / linear_wgmma_stage_bytes(record_bytes, tokens);
    return fit < LINEAR_WGMMA_STAGES_MAX ? fit : LINEAR_WGMMA_STAGES_MAX;
}

#ifndef __CUDACC__
#include "kernel/kernel.h"

//    format       kind        of those of kernel/split.h, then all
// clang-format off
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
// clang-format on
#define LINEAR_FORMATS(X) LINEAR_SPLIT(X) X(FP8_32, e4m3_32)

extern const struct kernel_packing linear_packing; // floats stay as they are

enum linear_kind linear_kind_of(enum dtype dtype); // LINEAR_KIND_COUNT: floats
size_t linear_group_bytes(enum linear_kind kind, int cols);
#endif

#endif
