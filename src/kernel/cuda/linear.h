// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear.h: parameters and sizes of linear's kernels, the same in C and in CUDA C, and how weights are
// packed for them.
#ifndef KERNEL_CUDA_LINEAR_H
#define KERNEL_CUDA_LINEAR_H

#include "kernel/cuda/linear_packed.h"
#include "kernel/cuda/params.h"

// Skinny GEMM (decode). Of a block's warps but the last, 2^split_shift split k; others have other tiles of rows,
// 2^side_shift at a time. The first `tiles_rest` blocks have a tile more than the others.
struct cuda_linear_skinny {
    struct cuda_linear linear;
    int32_t split_shift, side_shift;
    int32_t tiles_each, tiles_rest;
    int32_t x_shared; // x is copied into shared memory, else read where it is
};

enum { LINEAR_SKINNY_TOKENS = 8, LINEAR_SKINNY_WARPS_MAX = 16 };

// Stages of a warp's ring buffer: records, or pairs of them.
LINEAR_FUNCTION int linear_skinny_stages(int bytes) { return bytes <= 2048 ? 4 : bytes <= 2560 ? 3 : 2; }

// Wide GEMM (prefill).
struct cuda_linear_wide {
    struct cuda_linear linear;
    float *partials; // split-K partial sums: (split, token, row of all matrices), or as ranges leave them
    int32_t splits;  // into which k is cut, for linear_wide_add to add up; 1: there is nothing to add
    // sm_90a:
    int32_t tokens;             // of a tile
    uint8_t *x;                 // arranged for wgmma
    int32_t ranges, each, rest; // all tiles' records, one after another, are cut into: `each`, and `rest` left over
    int32_t *left;              // by range: 1 when it has left its sums; NULL: ranges are splits
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
    LINEAR_WGMMA_BARRIER_BYTES = 2 * 8 * LINEAR_WGMMA_STAGES_MAX,
    LINEAR_WGMMA_SHARED_BYTES = 227 * 1024 - LINEAR_WGMMA_BARRIER_BYTES, // of a block of sm_90, but for barriers
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

//    format       kind          `of` is for X, as it is. Formats of kernel/split.h; then all
// clang-format off
#define LINEAR_SPLIT(X, of)     \
    X(Q4_0,       int4_32,  of) \
    X(Q4_1,       int4_32m, of) \
    X(Q5_0,       int5_32m, of) \
    X(Q5_1,       int5_32m, of) \
    X(Q8_0,       int8_32,  of) \
    X(Q2_K,       int2_16m, of) \
    X(Q3_K,       int3_16,  of) \
    X(Q4_K,       int4_32m, of) \
    X(Q5_K,       int5_32m, of) \
    X(Q6_K,       int6_16,  of) \
    X(IQ4_NL,     int8_32,  of) \
    X(IQ4_XS,     int8_32,  of) \
    X(MXFP4_GGUF, e2m1_32,  of) \
    X(NVFP4_GGUF, e2m1_16,  of)
// clang-format on
#define LINEAR_FORMATS(X, of) LINEAR_SPLIT(X, of) X(FP8_32, e4m3_32, of)

extern const struct kernel_packing linear_packing;

enum linear_kind linear_kind_of(enum dtype dtype); // of LINEAR_FORMATS
size_t linear_group_bytes(enum linear_kind kind, int cols);
#endif

#endif
