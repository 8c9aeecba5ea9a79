// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/per_head_linear.cu: a small matrix for each head (batched GEMM), on tensor cores. A warp has sixteen rows
// of one head's matrix and some tokens; weights and activations come straight from memory, each weight once for all of
// the warp's tokens. A sum's order is that of the channels, whatever the number of tokens.
#include "kernel/cuda/common.cuh"
#include "kernel/cuda/per_head_linear.h"

enum { TILE = 16 };

DEVICE float half_value(uint32_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
    return value;
}

// Two neighbouring weights as bfloat16; 0 where there are none.
DEVICE uint32_t weight_pair(const struct cuda_per_head_linear &p, size_t row, int at, bool there)
{
    if (!there || at >= p.in)
        return 0;
    size_t index = row * (size_t)p.in + (size_t)at;
    bool two = at + 1 < p.in;
    if (p.dtype == DTYPE_BF16 && p.in % 2 == 0)
        return *(const uint32_t *)(p.weight + 2 * index);
    if (p.dtype == DTYPE_F16 && p.in % 2 == 0) {
        uint32_t halves = *(const uint32_t *)(p.weight + 2 * index);
        return bf16_pair(half_value(halves), half_value(halves >> 16));
    }
    float x[2] = { 0, 0 };
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (i == 0 || two) {
            const uint16_t *half = (const uint16_t *)p.weight + index + i;
            x[i] = p.dtype == DTYPE_F32 ? ((const float *)p.weight)[index + i]
                : p.dtype == DTYPE_F16  ? half_value(*half)
                                        : bf16_to_f32(*half);
        }
    return bf16_pair(x[0], x[1]);
}

// The same of a head's activations.
DEVICE uint32_t value_pair(const uint16_t *x, int at, int in, bool even)
{
    if (!x || at >= in)
        return 0;
    if (even)
        return *(const uint32_t *)(x + at);
    return x[at] | (at + 1 < in ? (uint32_t)x[at + 1] << 16 : 0);
}

template <int TOKEN_TILES> DEVICE void heads_tile(const struct cuda_per_head_linear &p)
{
    int head = (int)blockIdx.x, first = ((int)blockIdx.y * block_warps() + warp_index()) * TILE, lane = lane_index();
    int token = (int)blockIdx.z * TOKEN_TILES * 8, rows = *p.rows, x_dim = p.in + p.rest, y_dim = p.out + p.rest;
    bool even = p.in % 2 == 0 && x_dim % 2 == 0;
    wait_for_previous();
    if (first >= p.out || token >= rows)
        return;
    size_t weight_row = (size_t)head * (size_t)p.out + (size_t)(first + lane / 4);
    bool low = first + lane / 4 < p.out, high = first + lane / 4 + 8 < p.out;
    const uint16_t *x[TOKEN_TILES];
    float sum[TOKEN_TILES][4] = {};
#pragma unroll
    for (int i = 0; i < TOKEN_TILES; i++) {
        int own = token + i * 8 + lane / 4;
        x[i] = own < rows ? p.x + ((size_t)own * (size_t)p.heads + (size_t)head) * (size_t)x_dim : NULL;
    }
    for (int k = lane % 4 * 2; k - lane % 4 * 2 < p.in; k += TILE) {
        const uint32_t a[4] = { weight_pair(p, weight_row, k, low), weight_pair(p, weight_row + 8, k, high),
                                weight_pair(p, weight_row, k + 8, low), weight_pair(p, weight_row + 8, k + 8, high) };
#pragma unroll
        for (int i = 0; i < TOKEN_TILES; i++) {
            uint32_t b0 = value_pair(x[i], k, p.in, even), b1 = value_pair(x[i], k + 8, p.in, even);
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                         "{%0,%1,%2,%3};"
                         : "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
        }
    }
#pragma unroll
    for (int i = 0; i < TOKEN_TILES; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int own = token + i * 8 + lane % 4 * 2 + j % 2, row = first + lane / 4 + j / 2 * 8;
            if (own < rows && row < p.out)
                p.y[((size_t)own * (size_t)p.heads + (size_t)head) * (size_t)y_dim + (size_t)row] = bf16_round(
                    sum[i][j] * p.scale);
        }
    if (first > 0)
        return;
    for (int i = lane; i < TOKEN_TILES * 8 * p.rest; i += WARP) {
        int own = token + i / p.rest, channel = i % p.rest;
        size_t at = (size_t)own * (size_t)p.heads + (size_t)head;
        if (own < rows)
            p.y[at * (size_t)y_dim + (size_t)(p.out + channel)] = p.x[at * (size_t)x_dim + (size_t)(p.in + channel)];
    }
}

extern "C" __global__ void __launch_bounds__(PER_HEAD_THREADS)
    per_head_linear_skinny(const __grid_constant__ struct cuda_per_head_linear p)
{
    launch_next();
    heads_tile<PER_HEAD_SKINNY_TOKENS / 8>(p);
}

extern "C" __global__ void __launch_bounds__(PER_HEAD_THREADS)
    per_head_linear_wide(const __grid_constant__ struct cuda_per_head_linear p)
{
    launch_next();
    heads_tile<PER_HEAD_WIDE_TOKENS / 8>(p);
}
