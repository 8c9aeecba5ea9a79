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

// A warp's sums [D / 4][lane], then the columns' maxima and sums of shares.
template <class W> DEVICE void result_put(float *to, const struct running<W::D> *state)
{
#pragma unroll
    for (int i = 0; i < W::D / 4; i++)
        to[i * WARP + lane_index()] = state->out[i / 4][i % 4];
    float *columns = to + W::D / 4 * WARP + lane_index() % 4 * 2;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float sum = state->sum[c];
#pragma unroll
        for (int step = 4; step < WARP; step *= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
        if (lane_index() < 4) {
            columns[c] = state->maximum[c];
            columns[COLUMNS + c] = sum;
        }
    }
}

// Adds up four channels of the columns 2t + c, of all warps, one after the other, and writes them: finished, of a
// sequence of one part, or as what this part leaves behind.
template <class W>
DEVICE void result_add(const struct cuda_attention &p, const struct piece &piece, const float *const from[W::WARPS],
                       int quarter, int c)
{
    constexpr int D = W::D, TILES = D / 4 * WARP;
    int g = lane_index() / 4, t = lane_index() % 4, tile = quarter / 2 * 4, side = quarter % 2 * 2 + c;
    float top = SCORE_NONE, sum = 0, x[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < W::WARPS; i++)
        top = fmaxf(top, from[i][TILES + 2 * t + c]);
#pragma unroll
    for (int i = 0; i < W::WARPS; i++) {
        float weight = power_of_two(from[i][TILES + 2 * t + c] - top);
        sum += weight * from[i][TILES + COLUMNS + 2 * t + c];
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] += weight * from[i][((tile + j) * 4 + side) * WARP + lane_index()];
    }
    struct column column = column_of(p, piece, 2 * t + c);
    if (column.row >= piece.rows)
        return;
    int at = g * (D / 8) + quarter * 4;
    if (W::V != FORM_INT4 && piece.parts == 1) {
        float factor = finish_factor(p, column.head, top, sum) * unit_of(p.cache.v, D);
        uint16_t *out = p.out + ((size_t)(piece.first + column.row) * (size_t)p.heads + (size_t)column.head) * D;
        *(uint2 *)(out + at) =
            make_uint2(bf16_pair(x[0] * factor, x[1] * factor), bf16_pair(x[2] * factor, x[3] * factor));
        return;
    }
    float *partial = work_partials(p, piece.sequence, column.row, column.head, piece.parts)
                   + piece.part * (D + SPLIT_TAIL);
    *(float4 *)(partial + at) = make_float4(x[0], x[1], x[2], x[3]);
    if (g == 0 && quarter == 0)
        *(float2 *)(partial + D) = make_float2(top, sum);
}

// A piece is done: its warps leave their results in shared memory and add them up, some channels each.
template <class W>
DEVICE void piece_end(const struct cuda_attention &p, const struct piece &piece, uint8_t *shared, int free_stage,
                      const struct running<W::D> *state)
{
    __shared__ int places[W::WARPS];
    int place = warp_index() * W::RING_BYTES + free_stage * W::STAGE_BYTES;
    __syncwarp();
    result_put<W>((float *)(shared + place), state);
    if (lane_index() == 0)
        places[warp_index()] = place;
    __syncthreads();
    const float *from[W::WARPS];
#pragma unroll
    for (int i = 0; i < W::WARPS; i++)
        from[i] = (const float *)(shared + places[i]);
#pragma unroll 1
    for (int i = warp_index(); i < W::D / 16; i += W::WARPS)
        result_add<W>(p, piece, from, i / 2, i % 2);
    __syncthreads();
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
    for (int at = 4 * lane_index(); at < dim; at += 4 * WARP) {
        float4 x[MERGE_GROUP], total = make_float4(0, 0, 0, 0);
        float2 tail[MERGE_GROUP];
        float sum = 0, top = SCORE_NONE;
#pragma unroll
        for (int i = 0; i < MERGE_GROUP; i++) {
            const float *part = partials + min(i, count - 1) * stride;
            tail[i] = *(const float2 *)(part + dim);
            x[i] = *(const float4 *)(part + at);
        }
#pragma unroll
        for (int i = 0; i < MERGE_GROUP; i++)
            top = fmaxf(top, tail[i].x);
#pragma unroll
        for (int i = 0; i < MERGE_GROUP; i++) {
            float weight = i < count ? power_of_two(tail[i].x - top) : 0;
            sum += weight * tail[i].y;
            total.x += weight * x[i].x, total.y += weight * x[i].y;
            total.z += weight * x[i].z, total.w += weight * x[i].w;
        }
        *(float4 *)(out + at) = total;
        if (at == 0)
            *(float2 *)(out + dim) = make_float2(top, sum);
    }
}

// Channels i and i + 1 of all groups, under the maximum of all, times `factor`.
DEVICE float2 merge_groups(const float *groups, int count, int stride, float top, float factor, int i)
{
    float2 x = make_float2(0, 0);
    for (int j = 0; j < count; j++) {
        const float *group = groups + j * stride;
        float weight = power_of_two(group[stride - SPLIT_TAIL + SPLIT_MAXIMUM] - top);
        float2 y = *(const float2 *)(group + i);
        x.x += weight * y.x, x.y += weight * y.y;
    }
    return make_float2(x.x * factor, x.y * factor);
}

// Block (head, row of a sequence, sequence). Shared memory is for as many groups as there may be.
extern "C" __global__ void __launch_bounds__(8 * WARP, 4)
    attention_decode_merge(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ __align__(16) float groups[];
    int head = (int)blockIdx.x, row = (int)blockIdx.y, sequence = (int)blockIdx.z, dim = p.cache.v_dim;
    launch_next();
    bool rotated = p.cache.v.dtype == DTYPE_INT4_TOKEN;
    int first = p.batch.first[sequence], rows = p.batch.count[sequence], parts = 0;
    if (sequence < p.batch.counts[CUDA_SEQUENCES] && rows >= p.rows_min && rows <= p.rows_max && row < rows) {
        int last = p.batch.positions[first + rows - 1];
        parts = split_parts(first_seen(p, last - rows + 1), last, rows, p.part_shift);
    }
    wait_for_previous();
    if (parts == 0 || (parts == 1 && !rotated))
        return;
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
    uint16_t *out = p.out + ((size_t)(first + row) * (size_t)p.heads + (size_t)head) * (size_t)dim;
    for (int i = 2 * (int)threadIdx.x; i < dim; i += 2 * (int)blockDim.x) {
        float2 x = merge_groups(groups, count, stride, top, factor, i);
        if (rotated)
            *(float2 *)(groups + i) = x; // nobody else reads these channels
        else
            *(uint32_t *)(out + i) = bf16_pair(x.x, x.y);
    }
    if (!rotated)
        return;
    hadamard(groups, dim);
    flip_signs(groups, dim);
    for (int i = 2 * (int)threadIdx.x; i < dim; i += 2 * (int)blockDim.x)
        *(uint32_t *)(out + i) = bf16_pair(groups[i], groups[i + 1]);
}

#endif
