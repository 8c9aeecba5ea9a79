// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_few_x.cuh: how x comes into the shared memory of linear_few.cu: each warp brings its part of k,
// normed or converted in passing, and waits for no other, unless some have the same part: these share the work.
#ifndef KERNEL_CUDA_LINEAR_FEW_X_CUH
#define KERNEL_CUDA_LINEAR_FEW_X_CUH

#include "kernel/cuda/linear_few_weights.cuh"

// ---- shared memory ----

struct few_shared {
    uint8_t *ring;     // (stages, record) of this warp
    float *sums;       // (2, warps, group, token, row): two tiles' in turn
    float *gates;      // (side by side, token, row): of the tile before, where gate and up are tiles of their own
    float *squares;    // (token, warp)
    float *factors;    // (token)
    uint4 *x;          // (token, pieces)
};

template <class Weights> DEVICE struct few_shared few_memory()
{
    constexpr int ring_bytes = linear_few_stages(Weights::BYTES) * Weights::BYTES;
    extern __shared__ __align__(16) uint8_t memory[];
    struct few_shared shared;
    int warps = few_warps();
    shared.ring = memory + warp_index() * ring_bytes;
    shared.sums = (float *)(memory + warps * ring_bytes);
    shared.gates = shared.sums + 2 * warps * Weights::GROUPS * GROUP_SUMS;
    shared.squares = shared.gates + (Weights::GROUPS == 1 ? warps * GROUP_SUMS : 0);
    shared.factors = shared.squares + block_warps() * FEW_TOKENS;
    shared.x = (uint4 *)(shared.factors + FEW_TOKENS);
    return shared;
}

// ---- x ----

// What f16 cannot hold becomes its largest value.
DEVICE uint32_t f16_pair_of(uint32_t pair)
{
    uint32_t out;
    float low = fminf(fmaxf(bf16_low(pair), -65504.0f), 65504.0f);
    float high = fminf(fmaxf(bf16_high(pair), -65504.0f), 65504.0f);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

DEVICE uint4 f16_piece(uint4 x)
{
    return make_uint4(f16_pair_of(x.x), f16_pair_of(x.y), f16_pair_of(x.z), f16_pair_of(x.w));
}

// Eight values of x on their way from memory; with NORM they are f32, to be multiplied with the norm's weight.
template <bool NORM> struct x_piece;

template <> struct x_piece<false> {
    uint4 values = {};

    MEMBER void load(const struct cuda_linear &p, size_t at, int) { values = __ldcg((const uint4 *)p.x + at); }
    MEMBER uint4 finish(float *) const { return values; }
};

template <> struct x_piece<true> {
    float4 values[2] = {}, weights[2] = {};

    MEMBER void load(const struct cuda_linear &p, size_t at, int column)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            values[i] = __ldcg((const float4 *)p.x + 2 * at + i);
            weights[i] = __ldg((const float4 *)p.norm_weight + 2 * column + i);
        }
    }

    // Adds up squares.
    MEMBER uint4 finish(float *squares) const
    {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float4 v = values[i], w = weights[i];
            *squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
            pairs[2 * i] = bf16_pair(v.x * w.x, v.y * w.y);
            pairs[2 * i + 1] = bf16_pair(v.z * w.z, v.w * w.w);
        }
        return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
};

// Brings a warp's part of x, pieces [first, end) of each token, into shared memory, with zeros where x has none. What
// is loaded for TOKENS and STEPS is on its way before any is stored. Warps with the same part share it.
template <class Weights, bool NORM, int TOKENS, int STEPS>
DEVICE void few_take_part(const struct cuda_linear_few &q, const struct few_shared &shared, int first, int end,
                          int tokens)
{
    const struct cuda_linear &p = q.linear;
    int pieces = p.in / PIECE, all = (p.in + Weights::K - 1) / Weights::K * (Weights::K / PIECE);
    int own = (warp_index() >> q.split_shift) * WARP + lane_index(), step = WARP << q.side_shift;
    for (int token = 0; token < tokens; token += TOKENS) {
        float squares[TOKENS] = {};
        for (int start = first + own; start < end; start += STEPS * step) {
            struct x_piece<NORM> x[TOKENS * STEPS];
#pragma unroll
            for (int i = 0; i < TOKENS * STEPS; i++) {
                int t = token + i % TOKENS, column = start + i / TOKENS * step;
                if (t < tokens && column < end && column < pieces)
                    x[i].load(p, (size_t)t * (size_t)pieces + (size_t)column, column);
            }
#pragma unroll
            for (int i = 0; i < TOKENS * STEPS; i++) {
                int t = token + i % TOKENS, column = start + i / TOKENS * step;
                uint4 piece = x[i].finish(&squares[i % TOKENS]), *to = shared.x + t * all;
                if (t < tokens && column < end)
                    to[column ^ Weights::swizzle(t, column)] = Weights::HALF ? f16_piece(piece) : piece;
            }
        }
#pragma unroll
        for (int t = 0; t < TOKENS && NORM; t++) {
            float sum = lanes_sum(squares[t]);
            if (lane_index() == 0 && token + t < tokens)
                shared.squares[(token + t) * few_warps() + warp_index()] = sum;
        }
    }
    if (q.side_shift > 0)
        asm volatile("bar.sync %0, %1;" :: "r"((int)X_THERE), "r"(few_warps() * WARP) : "memory");
    else
        __syncwarp();
}

template <class Weights>
DEVICE void few_take_x(const struct cuda_linear_few &q, const struct few_shared &shared, int first, int end, int tokens)
{
    if (q.linear.norm_weight && tokens == 1)
        few_take_part<Weights, true, 1, 1>(q, shared, first, end, tokens);
    else if (q.linear.norm_weight)
        few_take_part<Weights, true, 2, 1>(q, shared, first, end, tokens);
    else if (tokens == 1 && end - first <= WARP)
        few_take_part<Weights, false, 1, 1>(q, shared, first, end, tokens);
    else if (tokens == 1)
        few_take_part<Weights, false, 1, 4>(q, shared, first, end, tokens);
    else
        few_take_part<Weights, false, 4, 1>(q, shared, first, end, tokens);
}

// A norm's weights are no other kernel's result either: on their way before x is there.
template <class Weights> DEVICE void few_warm_norm(const struct cuda_linear &p, int record, int count)
{
    enum { LINE = 128 / sizeof(float) };
    int end = (record + count) * Weights::K < p.in ? (record + count) * Weights::K : p.in;
#pragma unroll 1
    for (int k = record * Weights::K + lane_index() * LINE; k < end && p.norm_weight; k += WARP * LINE)
        asm volatile("prefetch.global.L2 [%0];" :: "l"(p.norm_weight + k));
}

// Once all warps have taken their parts.
DEVICE void few_find_factors(const struct cuda_linear_few &q, const struct few_shared &shared, int tokens)
{
    int warps = few_warps();
    for (int t = 0; t < tokens && q.linear.norm_weight; t++) {
        float squares = lanes_sum(lane_index() < warps ? shared.squares[t * warps + lane_index()] : 0);
        if (lane_index() == 0)
            shared.factors[t] = norm_factor(squares, q.linear.in, q.linear.epsilon);
    }
    __syncwarp();
}

template <class Weights>
DEVICE struct x_row few_x_row(const struct cuda_linear_few &q, const struct few_shared &shared, int tokens)
{
    int in = q.linear.in, all = (in + Weights::K - 1) / Weights::K * (Weights::K / PIECE);
    int token = lane_index() / 4 < tokens ? lane_index() / 4 : 0;
    const uint4 *given = (const uint4 *)((const uint16_t *)q.linear.x + (size_t)token * (size_t)in);
    if (!q.x_shared)
        return { given, 0, in / PIECE, 0 };
    return { given, shared_address(shared.x + token * all), all, Weights::swizzle(token, lane_index() % 4 * 4) };
}

#endif
