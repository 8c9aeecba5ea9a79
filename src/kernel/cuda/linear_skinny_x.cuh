// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_skinny_x.cuh: how x comes into the shared memory of linear_skinny.cu: each warp copies its part of
// k, normed or converted on the way, and waits for no other, unless some have the same part: these divide the work.
#ifndef KERNEL_CUDA_LINEAR_SKINNY_X_CUH
#define KERNEL_CUDA_LINEAR_SKINNY_X_CUH

#include "kernel/cuda/barrier.cuh"
#include "kernel/cuda/linear_skinny_weights.cuh"

// ---- shared memory ----

struct skinny_shared {
    uint8_t *ring;  // (stages, record) of this warp
    float *sums;    // (2, warps, group, token, row): two tiles' alternately
    float *gates;   // (side by side, token, row): of the tile before, where gate and up are tiles of their own
    float *squares; // (token, warp)
    float *factors; // (token)
    uint32_t there; // barriers (barrier.cuh): sums are there, of even rounds and of odd ones, ..
    uint32_t taken; // .. and have been taken
    uint4 *x;       // (token, chunks)
};

template <class Weights> DEVICE struct skinny_shared skinny_memory()
{
    constexpr int ring_bytes = linear_skinny_stages(Weights::BYTES) * Weights::BYTES;
    extern __shared__ __align__(16) uint8_t memory[];
    struct skinny_shared shared;
    int warps = skinny_warps();
    shared.ring = memory + warp_index() * ring_bytes;
    shared.sums = (float *)(memory + warps * ring_bytes);
    shared.gates = shared.sums + 2 * warps * Weights::GROUPS * GROUP_SUMS;
    shared.squares = shared.gates + (Weights::GROUPS == 1 ? warps * GROUP_SUMS : 0);
    shared.factors = shared.squares + block_warps() * SKINNY_TOKENS;
    shared.there = shared_address(shared.factors + SKINNY_TOKENS);
    shared.taken = shared.there + 2 * BARRIER_BYTES;
    shared.x = (uint4 *)(shared.factors + SKINNY_TOKENS) + 4 * BARRIER_BYTES / sizeof(uint4);
    return shared;
}

// ---- x ----

// Converts two bf16 to f16; values that f16 cannot hold become its largest.
DEVICE uint32_t f16_pair_of(uint32_t pair)
{
    uint32_t out;
    float low = fminf(fmaxf(bf16_low(pair), -65504.0f), 65504.0f);
    float high = fminf(fmaxf(bf16_high(pair), -65504.0f), 65504.0f);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

DEVICE uint4 f16_chunk(uint4 x)
{
    return make_uint4(f16_pair_of(x.x), f16_pair_of(x.y), f16_pair_of(x.z), f16_pair_of(x.w));
}

// Sixteen bytes of x on their way from memory, so that a warp reads what lies together; with NORM they are f32, to be
// multiplied with the norm's weight.
template <bool NORM> struct x_chunk;

template <> struct x_chunk<false> {
    static constexpr int VALUES = CHUNK;
    uint4 values = {};

    MEMBER void load(const struct cuda_linear &p, size_t at, int) { values = __ldcg((const uint4 *)p.x + at); }
    template <bool HALF> MEMBER void store(uint4 *to, int, float *) const { *to = HALF ? f16_chunk(values) : values; }
};

template <> struct x_chunk<true> {
    static constexpr int VALUES = CHUNK / 2;
    float4 values = {}, weights = {};

    MEMBER void load(const struct cuda_linear &p, size_t at, int column)
    {
        values = __ldcg((const float4 *)p.x + at);
        weights = __ldg((const float4 *)p.norm_weight + column);
    }

    // As one of a chunk's two parts. Adds up squares.
    template <bool HALF> MEMBER void store(uint4 *to, int part, float *squares) const
    {
        float4 v = values, w = weights;
        uint32_t first = bf16_pair(v.x * w.x, v.y * w.y), second = bf16_pair(v.z * w.z, v.w * w.w);
        *squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        ((uint2 *)to)[part] = HALF ? make_uint2(f16_pair_of(first), f16_pair_of(second)) : make_uint2(first, second);
    }
};

// Copies a warp's part of x, chunks [first, end) of each token, into shared memory, with zeros where x has none. All
// loads for TOKENS and STEPS are issued before any is stored. Warps with the same part divide it.
template <class Weights, bool NORM, int TOKENS, int STEPS>
DEVICE void skinny_take_part(const struct cuda_linear_skinny &q, const struct skinny_shared &shared, int first, int end,
                             int tokens)
{
    constexpr int PARTS = CHUNK / x_chunk<NORM>::VALUES; // of a chunk
    const struct cuda_linear &p = q.linear;
    int columns = p.in / x_chunk<NORM>::VALUES, all = (p.in + Weights::K - 1) / Weights::K * (Weights::K / CHUNK);
    int own = (warp_index() >> q.split_shift) * WARP + lane_index(), step = WARP << q.side_shift;
    for (int token = 0; token < tokens; token += TOKENS) {
        float squares[TOKENS] = {};
        for (int start = first * PARTS + own; start < end * PARTS; start += STEPS * step) {
            struct x_chunk<NORM> x[TOKENS * STEPS];
#pragma unroll
            for (int i = 0; i < TOKENS * STEPS; i++) {
                int t = token + i % TOKENS, column = start + i / TOKENS * step;
                if (t < tokens && column < end * PARTS && column < columns)
                    x[i].load(p, (size_t)t * (size_t)columns + (size_t)column, column);
            }
#pragma unroll
            for (int i = 0; i < TOKENS * STEPS; i++) {
                int t = token + i % TOKENS, column = start + i / TOKENS * step, chunk = column / PARTS;
                uint4 *to = shared.x + t * all + (chunk ^ Weights::swizzle(t, chunk));
                if (t < tokens && column < end * PARTS)
                    x[i].template store<Weights::HALF>(to, column % PARTS, &squares[i % TOKENS]);
            }
        }
#pragma unroll
        for (int t = 0; t < TOKENS && NORM; t++) {
            float sum = lanes_sum(squares[t]);
            if (lane_index() == 0 && token + t < tokens)
                shared.squares[(token + t) * skinny_warps() + warp_index()] = sum;
        }
    }
    if (q.side_shift > 0)
        asm volatile("bar.sync 1, %0;" ::"r"(skinny_warps() * WARP) : "memory"); // all but the one that adds up
    else
        __syncwarp();
}

template <class Weights>
DEVICE void skinny_take_x(const struct cuda_linear_skinny &q, const struct skinny_shared &shared, int first, int end,
                          int tokens)
{
    if (q.linear.norm_weight && tokens == 1)
        skinny_take_part<Weights, true, 1, 4>(q, shared, first, end, tokens);
    else if (q.linear.norm_weight)
        skinny_take_part<Weights, true, 2, 2>(q, shared, first, end, tokens);
    else if (tokens == 1 && end - first <= WARP)
        skinny_take_part<Weights, false, 1, 1>(q, shared, first, end, tokens);
    else if (tokens == 1)
        skinny_take_part<Weights, false, 1, 4>(q, shared, first, end, tokens);
    else
        skinny_take_part<Weights, false, 4, 1>(q, shared, first, end, tokens);
}

// A norm's weights are no other kernel's result either: on their way before x is there.
template <class Weights> DEVICE void skinny_warm_norm(const struct cuda_linear &p, int record, int count)
{
    enum { LINE = 128 / sizeof(float) };
    int end = (record + count) * Weights::K < p.in ? (record + count) * Weights::K : p.in;
#pragma unroll 1
    for (int k = record * Weights::K + lane_index() * LINE; k < end && p.norm_weight; k += WARP * LINE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.norm_weight + k));
}

// Once all warps have taken their parts.
DEVICE void skinny_find_factors(const struct cuda_linear_skinny &q, const struct skinny_shared &shared, int tokens)
{
    int warps = skinny_warps();
    for (int t = 0; t < tokens && q.linear.norm_weight; t++) {
        float squares = lanes_sum(lane_index() < warps ? shared.squares[t * warps + lane_index()] : 0);
        if (lane_index() == 0)
            shared.factors[t] = norm_factor(squares, q.linear.in, q.linear.epsilon);
    }
    __syncwarp();
}

template <class Weights>
DEVICE struct x_row skinny_x_row(const struct cuda_linear_skinny &q, const struct skinny_shared &shared, int tokens)
{
    int in = q.linear.in, all = (in + Weights::K - 1) / Weights::K * (Weights::K / CHUNK);
    int token = lane_index() / 4 < tokens ? lane_index() / 4 : 0;
    struct x_row row = { {}, (const uint4 *)((const uint16_t *)q.linear.x + (size_t)token * (size_t)in), in / CHUNK };
#pragma unroll
    for (int i = 0; i < Weights::X_CHUNKS; i++) {
        int chunk = Weights::lane_chunk(lane_index(), i);
        row.shared[i] = shared_address(shared.x + token * all + (chunk ^ Weights::swizzle(token, chunk)));
    }
    return row;
}

#endif
