// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_result.cuh: from the sums of warps to decode attention's result. A block adds up those of its
// warps. A sequence of one part is then finished; of several, each leaves its sums behind (work_partials), and a second
// kernel adds them up, always in the same order.
#ifndef KERNEL_CUDA_ATTENTION_RESULT_CUH
#define KERNEL_CUDA_ATTENTION_RESULT_CUH

#include "kernel/cuda/attention_step.cuh"

// What a value of V is worth that is unpacked as 1.
DEVICE float unit_of(const struct cuda_side &side, int dim)
{
    switch (side.dtype) {
    case DTYPE_FP8_E4M3:
    case DTYPE_FP8_E5M2:
        return side.scale;
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6:
        return side.scale * E2M1_UNIT;
    case DTYPE_INT4_TOKEN:
        return 1 / (float)dim;
    default:
        return 1;
    }
}

// What sums under this maximum are to be multiplied with, once all parts are in: the sink takes part here.
DEVICE float finish_factor(const struct cuda_attention &p, int head, float maximum, float sum)
{
    float top = maximum, sink = p.sinks ? p.sinks[head] * LOG2_E : SCORE_NONE;
    top = fmaxf(top, sink);
    float keep = power_of_two(maximum - top);
    return __fdividef(keep, sum * keep + power_of_two(sink - top));
}

// ---- within a block ----

template <int D> DEVICE void result_put(float4 *to, const struct running<D> *state)
{
    to[lane_index()] = make_float4(state->maximum[0], state->maximum[1], state->sum[0], state->sum[1]);
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        to[(i + 1) * WARP + lane_index()] =
            make_float4(state->out[i][0], state->out[i][1], state->out[i][2], state->out[i][3]);
}

// What a warp's sums are to be multiplied with, given the maximum of all.
struct weights {
    float of[2];
};

DEVICE struct weights weights_of(float maximum_0, float maximum_1, const float top[2])
{
    return { power_of_two(maximum_0 - top[0]), power_of_two(maximum_1 - top[1]) };
}

// (a + b) + (c + d), each times its weight, or a + b alone. Sums and products are rounded one by one: so it is the same
// whichever warp does it, with its own sums as `a` and its neighbour's as `b`.
template <int WARPS> DEVICE float add_weighted(const float x[4], const struct weights w[4], int column)
{
    float pair = __fadd_rn(__fmul_rn(x[0], w[0].of[column]), __fmul_rn(x[1], w[1].of[column]));
    return WARPS == 2 ? pair : __fadd_rn(pair, __fadd_rn(__fmul_rn(x[2], w[2].of[column]),
                                                         __fmul_rn(x[3], w[3].of[column])));
}

// Adds up the results of all warps, by one of them; the others' are in shared memory.
template <class W> DEVICE void results_add(const float4 *shared, struct running<W::D> *state)
{
    static_assert(W::WARPS == 2 || W::WARPS == 4, "pairs, or pairs of pairs");
    constexpr int OTHERS = W::WARPS - 1;
    const float4 *from[OTHERS];
    float4 x[4] = { make_float4(state->maximum[0], state->maximum[1], state->sum[0], state->sum[1]) };
    struct weights weight[4];
    float top[2] = { state->maximum[0], state->maximum[1] };
#pragma unroll
    for (int i = 0; i < OTHERS; i++) {
        int warp = warp_index() ^ (i + 1);
        from[i] = shared + (warp - (warp > warp_index())) * (W::RESULT_BYTES / 16) + lane_index();
        x[i + 1] = from[i][0];
        top[0] = fmaxf(top[0], x[i + 1].x);
        top[1] = fmaxf(top[1], x[i + 1].y);
    }
#pragma unroll
    for (int i = 0; i < W::WARPS; i++)
        weight[i] = weights_of(x[i].x, x[i].y, top);
#define ADD(member, column) \
    add_weighted<W::WARPS>((const float[4]){ x[0].member, x[1].member, x[2].member, x[3].member }, weight, column)
    state->maximum[0] = top[0], state->maximum[1] = top[1];
    state->sum[0] = ADD(z, 0);
    state->sum[1] = ADD(w, 1);
#pragma unroll
    for (int i = 0; i < W::D / 16; i++) {
        x[0] = make_float4(state->out[i][0], state->out[i][1], state->out[i][2], state->out[i][3]);
#pragma unroll
        for (int j = 0; j < OTHERS; j++)
            x[j + 1] = from[j][(i + 1) * WARP];
        state->out[i][0] = ADD(x, 0);
        state->out[i][1] = ADD(y, 1);
        state->out[i][2] = ADD(z, 0);
        state->out[i][3] = ADD(w, 1);
    }
#undef ADD
}

// Barriers of a block's warps. Those that have put down their results go on; the one that adds them up waits for them,
// and they for it before they put down the next: by then it is long done. It does not wait for them in turn, so that it
// may come to the next such wait before they have come to this one: pieces take turns with two barriers.
enum { BARRIER_PUT = 1, BARRIER_ADDED = 2 };

template <class W> DEVICE void barrier_arrive(int barrier)
{
    asm volatile("barrier.cta.arrive %0, %1;" :: "r"(barrier), "n"(W::WARPS * WARP) : "memory");
}

template <class W> DEVICE void barrier_wait(int barrier)
{
    asm volatile("barrier.cta.sync %0, %1;" :: "r"(barrier), "n"(W::WARPS * WARP) : "memory");
}

// Writes the finished result of a sequence of one part, or what this part leaves behind.
template <class W>
DEVICE void result_write(const struct cuda_attention &p, const struct piece &piece, const struct running<W::D> *state)
{
    constexpr int D = W::D;
    int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float sum = state->sum[c];
#pragma unroll
        for (int step = 4; step < WARP; step *= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
        struct column column = column_of(p, piece, 2 * t + c);
        if (column.row >= piece.rows)
            continue;
        bool finished = W::V != FORM_INT4 && piece.parts == 1;
        float factor = finished ? finish_factor(p, column.head, state->maximum[c], sum) * unit_of(p.cache.v, D) : 1;
        float *partial = work_partials(p, piece.sequence, column.row, column.head, piece.parts)
                       + piece.part * (D + SPLIT_TAIL);
        uint16_t *out = p.out + ((size_t)(piece.first + column.row) * (size_t)p.heads + (size_t)column.head) * D;
#pragma unroll
        for (int i = 0; i < D / 32; i++) { // four channels each
            int at = g * (D / 8) + i * 4, tile = i / 2 * 4, side = i % 2 * 2 + c;
            float4 x = make_float4(state->out[tile][side] * factor, state->out[tile + 1][side] * factor,
                                   state->out[tile + 2][side] * factor, state->out[tile + 3][side] * factor);
            if (finished)
                *(uint2 *)(out + at) = make_uint2(bf16_pair(x.x, x.y), bf16_pair(x.z, x.w));
            else
                *(float4 *)(partial + at) = x;
        }
        if (!finished && g == 0)
            *(float2 *)(partial + D) = make_float2(state->maximum[c], sum);
    }
}

// A block's n-th piece is done: warp n modulo WARPS adds up and writes.
template <class W>
DEVICE void piece_end(const struct cuda_attention &p, const struct piece &piece, int n, float4 *shared,
                      struct running<W::D> *state)
{
    int adder = n % W::WARPS, adder_before = (n + W::WARPS - 1) % W::WARPS;
    if (n > 0 && warp_index() != adder_before)
        barrier_wait<W>(BARRIER_ADDED + (n - 1) % 2);
    if (warp_index() != adder) {
        result_put<W::D>(shared + (warp_index() - (warp_index() > adder)) * (W::RESULT_BYTES / 16), state);
        barrier_arrive<W>(BARRIER_PUT);
        return;
    }
    barrier_wait<W>(BARRIER_PUT);
    results_add<W>(shared, state);
    barrier_arrive<W>(BARRIER_ADDED + n % 2);
    result_write<W>(p, piece, state);
}

// ---- across parts ----

// MERGE_GROUP neighbouring parts are added up by one warp, all at once, and what groups have one after the other: so
// the order does not depend on the number of warps.
enum { MERGE_GROUP = 8 };

// The two halves of a rotation (kernel/ref/kv_codec.h), by the whole block.
DEVICE void hadamard(float *x, int dim)
{
    for (int stride = 1; stride < dim; stride *= 2) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < dim / 2; i += (int)blockDim.x) {
            int at = i / stride * stride * 2 + i % stride;
            float a = x[at], b = x[at + stride];
            x[at] = a + b;
            x[at + stride] = a - b;
        }
    }
    __syncthreads();
}

DEVICE void flip_signs(float *x, int dim)
{
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        if (kv_rotation_signs(i / 64) >> i % 64 & 1)
            x[i] = -x[i];
    __syncthreads();
}

// A group's sums under their common maximum, to (dim) and the maximum and sum behind it. All loads are under way before
// the first is used.
DEVICE void merge_group(const float *partials, int count, int dim, float *out)
{
    int stride = dim + SPLIT_TAIL;
    for (int at = 2 * lane_index(); at < dim; at += 2 * WARP) {
        float2 x[MERGE_GROUP], tail[MERGE_GROUP], total = make_float2(0, 0);
        float sum = 0, top = SCORE_NONE;
#pragma unroll
        for (int i = 0; i < MERGE_GROUP; i++) {
            const float *part = partials + min(i, count - 1) * stride;
            x[i] = *(const float2 *)(part + at);
            tail[i] = *(const float2 *)(part + dim);
        }
#pragma unroll
        for (int i = 0; i < MERGE_GROUP; i++)
            top = fmaxf(top, tail[i].x);
#pragma unroll
        for (int i = 0; i < MERGE_GROUP; i++) {
            float weight = i < count ? power_of_two(tail[i].x - top) : 0;
            sum += weight * tail[i].y;
            total.x += weight * x[i].x, total.y += weight * x[i].y;
        }
        *(float2 *)(out + at) = total;
        if (at == 0)
            *(float2 *)(out + dim) = make_float2(top, sum);
    }
}

// Block (head, row of a sequence, sequence). Shared memory is for as many groups as there may be.
extern "C" __global__ void __launch_bounds__(8 * WARP, 4)
    attention_decode_merge(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ float groups[];
    int head = (int)blockIdx.x, row = (int)blockIdx.y, sequence = (int)blockIdx.z, dim = p.cache.v_dim;
    launch_next();
    if (sequence >= p.batch.counts[CUDA_SEQUENCES])
        return;
    int rows = p.batch.count[sequence], first = p.batch.first[sequence];
    bool rotated = p.cache.v.dtype == DTYPE_INT4_TOKEN;
    if (rows < p.rows_min || rows > p.rows_max || row >= rows)
        return;
    int last = p.batch.positions[first + rows - 1], parts = split_parts(first_seen(p, last - rows + 1), last, rows);
    if (parts == 1 && !rotated)
        return;
    wait_for_previous();
    const float *partials = work_partials(p, sequence, row, head, parts);
    int count = (parts + MERGE_GROUP - 1) / MERGE_GROUP, stride = dim + SPLIT_TAIL;
    for (int i = warp_index(); i < count; i += block_warps())
        merge_group(partials + i * MERGE_GROUP * stride, min(parts - i * MERGE_GROUP, (int)MERGE_GROUP), dim,
                    groups + i * stride);
    __syncthreads();

    float top = SCORE_NONE, sum = 0;
    for (int i = 0; i < count; i++)
        top = fmaxf(top, groups[i * stride + dim + SPLIT_MAXIMUM]);
    for (int i = 0; i < count; i++)
        sum += power_of_two(groups[i * stride + dim + SPLIT_MAXIMUM] - top) * groups[i * stride + dim + SPLIT_SUM];
    float factor = finish_factor(p, head, top, sum) * unit_of(p.cache.v, dim);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        float x = 0;
        for (int j = 0; j < count; j++)
            x += power_of_two(groups[j * stride + dim + SPLIT_MAXIMUM] - top) * groups[j * stride + i];
        groups[i] = x * factor; // nobody else reads this channel
    }
    __syncthreads();
    if (rotated) {
        hadamard(groups, dim);
        flip_signs(groups, dim);
    }
    uint16_t *out = p.out + ((size_t)(first + row) * (size_t)p.heads + (size_t)head) * (size_t)dim;
    for (int i = 2 * (int)threadIdx.x; i < dim; i += 2 * (int)blockDim.x)
        *(uint32_t *)(out + i) = bf16_pair(groups[i], groups[i + 1]);
}

#endif
