// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_result.cuh: combining the KV splits of decode attention (log-sum-exp), along the tree of
// attention_split.h: a warp combines its splits, a CTA its warps. A sequence of one chunk is then finished; of several,
// each chunk writes its sums (work_partials), and attention_decode_combine combines them.
#ifndef KERNEL_CUDA_ATTENTION_RESULT_CUH
#define KERNEL_CUDA_ATTENTION_RESULT_CUH

#include "kernel/cuda/attention_step.cuh"

// The value of V that is dequantised as 1.
DEVICE float unit_of(const struct cuda_side &side, int dim)
{
    switch (side.dtype) {
    case DTYPE_FP8_E4M3:
    case DTYPE_FP8_E5M2: return side.scale;
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: return side.scale * E2M1_UNIT;
    case DTYPE_INT8_TOKEN: return INT8_UNIT;
    case DTYPE_INT4_TOKEN: return 1 / (float)dim;
    default: return 1;
    }
}

// The factor that normalises sums under this maximum once all splits are in; the attention sink joins the softmax here.
DEVICE float finish_factor(const struct cuda_attention &p, int head, float maximum, float sum)
{
    float top = maximum, sink = p.sinks ? p.sinks[head] * LOG2_E : SCORE_NONE;
    top = fmaxf(top, sink);
    float keep = power_of_two(maximum - top);
    return __fdividef(keep, sum * keep + power_of_two(sink - top));
}

// ---- within a warp ----

// Lanes whose columns belong to the second split have a maximum above all scores until it begins: they add 0.
template <int D> DEVICE void running_clear(const struct work_tile &tile, struct running<D> *state)
{
    *state = {};
    state->maximum[0] = state->maximum[1] = tile.is_half && lane_index() % 4 >= 2 ? SCORE_ALL : SCORE_NONE;
}

// Two or four splits of one warp combined: columns 2 (t % 2) and the next, and of every eight channels of running.out
// the lower four if t < 2, else the upper four.
template <int D> struct node {
    float maximum[2], sum[2];
    float x[D / 16][2];
};

// The second split is COLUMNS / 2 columns, and two lanes, away.
template <int D> DEVICE void node_make(const struct running<D> &state, struct node<D> *node)
{
    constexpr int AWAY = COLUMNS / 4;
    bool upper = lane_index() % 4 >= AWAY;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float sum = state.sum[c], theirs = __shfl_xor_sync(WARP_ALL, state.maximum[c], AWAY);
        float top = fmaxf(state.maximum[c], theirs), own = weight_of(state.maximum[c], top);
        theirs = weight_of(theirs, top);
#pragma unroll
        for (int step = 4; step < WARP; step *= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
        node->maximum[c] = top;
        node->sum[c] = own * sum + theirs * __shfl_xor_sync(WARP_ALL, sum, AWAY);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            float other = __shfl_xor_sync(WARP_ALL, upper ? state.out[i][c] : state.out[i][c + 2], AWAY);
            node->x[i][c] = own * (upper ? state.out[i][c + 2] : state.out[i][c]) + theirs * other;
        }
    }
}

// Adds the node beside it.
template <int D> DEVICE void node_add(struct node<D> *own, const struct node<D> &other)
{
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float top = fmaxf(own->maximum[c], other.maximum[c]);
        float keep = weight_of(own->maximum[c], top), take = weight_of(other.maximum[c], top);
        own->maximum[c] = top;
        own->sum[c] = keep * own->sum[c] + take * other.sum[c];
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            own->x[i][c] = keep * own->x[i][c] + take * other.x[i][c];
    }
}

// ---- within a CTA ----

// A warp writes its sums as [items][lane][COUNT], each item some neighbouring channels of a column, then the maxima and
// softmax denominators of the columns. Whole tiles have items of four, half tiles as many items of two.
template <int COUNT> DEVICE void item_store(float *to, int item, const float x[COUNT])
{
    to += (item * WARP + lane_index()) * COUNT;
    if constexpr (COUNT == 4)
        *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
    else
        *(float2 *)to = make_float2(x[0], x[1]);
}

template <int COUNT> DEVICE void item_load(const float *from, int item, float x[COUNT])
{
    from += (item * WARP + lane_index()) * COUNT;
    if constexpr (COUNT == 4) {
        float4 y = *(const float4 *)from;
        x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    } else {
        float2 y = *(const float2 *)from;
        x[0] = y.x, x[1] = y.y;
    }
}

template <int D> DEVICE void result_put(float *to, const struct running<D> &state)
{
    float *columns = to + D / 4 * WARP + lane_index() % 4 * 2;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int tile = i / 4 * 4, c = i % 4 / 2 * 2 + i % 2;
        const float x[4] = { state.out[tile][c], state.out[tile + 1][c], state.out[tile + 2][c],
                             state.out[tile + 3][c] };
        item_store<4>(to, i, x);
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float sum = state.sum[c];
#pragma unroll
        for (int step = 4; step < WARP; step *= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
        if (lane_index() < 4) {
            columns[c] = state.maximum[c];
            columns[COLUMNS + c] = sum;
        }
    }
}

template <int D> DEVICE void result_put(float *to, const struct node<D> &node)
{
    float *columns = to + D / 4 * WARP + lane_index() * 2;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const float x[2] = { node.x[i / 2 * 2][i % 2], node.x[i / 2 * 2 + 1][i % 2] };
        item_store<2>(to, i, x);
    }
    if (lane_index() < 2) {
        *(float2 *)columns = make_float2(node.maximum[0], node.maximum[1]);
        *(float2 *)(columns + COLUMNS) = make_float2(node.sum[0], node.sum[1]);
    }
}

// The sum of COUNT neighbours, a power of two, as a binary tree.
template <int COUNT> DEVICE float tree_sum(float x[COUNT])
{
#pragma unroll
    for (int step = 1; step < COUNT; step *= 2)
#pragma unroll
        for (int i = 0; i < COUNT; i += 2 * step)
            x[i] += x[i + step];
    return x[0];
}

// Writes COUNT channels of a column from `at` on: the result of a sequence of one chunk, or the sums of this chunk.
template <class W, int COUNT>
DEVICE void result_write(const struct cuda_attention &p, const struct work_tile &tile, const struct column &column,
                         int at, float maximum, float sum, const float x[COUNT])
{
    constexpr int D = W::D;
    float *partial = work_partials(p, tile.sequence, tile.rows, column.row, column.head)
        + tile.chunk * (D + SPLIT_TAIL);
    if (W::V != FORM_INT4 && tile.chunks == 1) {
        float factor = finish_factor(p, column.head, maximum, sum) * unit_of(p.cache.v, D);
        uint16_t *out = p.out + ((size_t)(tile.first + column.row) * (size_t)p.heads + (size_t)column.head) * D + at;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2)
            ((uint32_t *)out)[i / 2] = bf16_pair(x[i] * factor, x[i + 1] * factor);
    } else
#pragma unroll
        for (int i = 0; i < COUNT; i += 2)
            *(float2 *)(partial + at + i) = make_float2(x[i], x[i + 1]);
    if (at == 0)
        *(float4 *)(partial + D) = make_float4(maximum, sum, (float)tile.chunks, 0);
}

// Combines an item of all warps and writes it.
template <class W, int COUNT>
DEVICE void result_add(const struct cuda_attention &p, const struct work_tile &tile, const float *const from[W::WARPS],
                       int item)
{
    constexpr int D = W::D, TAIL = D / 4 * WARP;
    int g = lane_index() / 4, t = lane_index() % 4, c = item % 2;
    int index = c + 2 * (COUNT == 4 ? t : t % 2);
    float top = SCORE_NONE, weight[W::WARPS], sums[W::WARPS], items[W::WARPS][COUNT], x[COUNT];
#pragma unroll
    for (int i = 0; i < W::WARPS; i++)
        top = fmaxf(top, from[i][TAIL + index]);
#pragma unroll
    for (int i = 0; i < W::WARPS; i++) {
        item_load<COUNT>(from[i], item, items[i]);
        weight[i] = weight_of(from[i][TAIL + index], top);
        sums[i] = weight[i] * from[i][TAIL + COLUMNS + index];
    }
    float sum = tree_sum<W::WARPS>(sums);
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
#pragma unroll
        for (int i = 0; i < W::WARPS; i++)
            sums[i] = weight[i] * items[i][j];
        x[j] = tree_sum<W::WARPS>(sums);
    }
    struct column column = column_of(p, tile, index);
    int at = g * (D / 8) + (COUNT == 4 ? item / 2 * 4 : item / 4 * 8 + t / 2 * 4 + item / 2 % 2 * 2);
    if (has_query(p, tile, column))
        result_write<W, COUNT>(p, tile, column, at, top, sum, x);
}

// The end of a work tile: its warps write their sums to shared memory and combine them, some channels each.
template <class W>
DEVICE void tile_end(const struct cuda_attention &p, const struct work_tile &tile, uint8_t *shared, int free_stage,
                     const struct running<W::D> &state, const struct node<W::D> &kept)
{
    __shared__ int places[W::WARPS];
    int place = warp_index() * W::RING_BYTES + free_stage * W::STAGE_BYTES;
    float *own = (float *)(shared + place);
    __syncwarp();
    if (tile.is_half) {
        struct node<W::D> node;
        node_make(state, &node);
        if (W::SPLITS_MAX > 2 && tile.splits > 2)
            node_add(&node, kept);
        result_put(own, node);
    } else
        result_put(own, state);
    if (lane_index() == 0)
        places[warp_index()] = place;
    __syncthreads();
    const float *from[W::WARPS];
#pragma unroll
    for (int i = 0; i < W::WARPS; i++)
        from[i] = (const float *)(shared + places[i]);
#pragma unroll 1
    for (int i = warp_index(); i < W::D / 16; i += W::WARPS)
        if (tile.is_half)
            result_add<W, 2>(p, tile, from, i);
        else
            result_add<W, 4>(p, tile, from, i);
    __syncthreads();
}

// ---- across chunks ----

// The most results of one row and query head.
enum { COMBINE_RESULTS = 1 << SPLIT_LOG_RESULTS };
static_assert(COMBINE_RESULTS <= WARP, "one for each lane");

// The two halves of a rotation (kernel/ref/kv_codec.h), by the whole CTA.
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

// One vector, by a CTA of one warp. Inlined, its loop invariants would cost registers in the kernel.
static __device__ __noinline__ void unrotate(float *values, int dim, uint16_t *out)
{
    hadamard(values, dim);
    flip_signs(values, dim);
    for (int i = 2 * lane_index(); i < dim; i += 2 * WARP)
        *(uint32_t *)(out + i) = bf16_pair(values[i], values[i + 1]);
    __syncwarp();
}

// Combines one row and query head, by a warp, into `out`, or, if values are rotated, into `rotated`. All loads, that of
// the number of chunks included, are issued before the first is used, but none behind chunk `last`.
DEVICE void combine(const struct cuda_attention &p, const float *partials, int last, int head, uint16_t *out,
                    float *rotated)
{
    int dim = p.cache.v_dim, each = dim + SPLIT_TAIL;
    for (int base = 0; base < dim; base += 4 * WARP) {
        int at = base + 4 * lane_index(), chunks = (int)partials[dim + SPLIT_CHUNKS];
        float2 tail = *(const float2 *)(partials + min(lane_index(), last) * each + dim); // of this lane's chunk
        __align__(16) float x[COMBINE_RESULTS][4] = {}, all[4];
#pragma unroll
        for (int i = 0; i < COMBINE_RESULTS; i++)
            if (i <= last && at < dim)
                *(float4 *)x[i] = *(const float4 *)(partials + i * each + at);
        if (chunks == 1 && !rotated)
            return; // the decode kernel wrote the result
        bool there = lane_index() < chunks;
        float top = lanes_max(there ? tail.x : SCORE_NONE), weight = weight_of(tail.x, top);
        float sum = there ? weight * tail.y : 0, weights[COMBINE_RESULTS];
#pragma unroll
        for (int step = 1; step < WARP; step *= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
#pragma unroll
        for (int i = 0; i < COMBINE_RESULTS; i++)
            weights[i] = __shfl_sync(WARP_ALL, weight, i);
        float factor = finish_factor(p, head, top, sum) * unit_of(p.cache.v, dim);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float sums[COMBINE_RESULTS];
#pragma unroll
            for (int i = 0; i < COMBINE_RESULTS; i++)
                sums[i] = i < chunks ? weights[i] * x[i][c] : 0;
            all[c] = tree_sum<COMBINE_RESULTS>(sums) * factor;
        }
        if (at < dim && rotated)
            *(float4 *)(rotated + at) = *(float4 *)all;
        else if (at < dim)
            *(uint2 *)(out + at) = make_uint2(bf16_pair(all[0], all[1]), bf16_pair(all[2], all[3]));
    }
}

// A sequence and a query head to combine; rows is 0 if this launch has nothing to do for it.
struct combine_pair {
    int sequence, head, first, rows;
};

DEVICE struct combine_pair combine_pair(const struct cuda_attention &p, int pair, int row)
{
    int sequence = divide(pair, p.heads);
    if (sequence >= p.sequences)
        return {};
    int first = p.batch.first[sequence], rows = p.batch.count[sequence], sequences = p.batch.counts[CUDA_SEQUENCES];
    bool is_ours = sequence < sequences && rows >= p.rows_min && rows <= p.rows_max && row < rows;
    return { sequence, pair - sequence * p.heads, first, is_ours ? rows : 0 };
}

// Grid (pairs, row of a sequence): pairs are assigned to warps round-robin, up to one for each lane, which looks up its
// number of chunks. If there are few sequences, all chunks are loaded before that number is known. If values are
// rotated, a CTA has one warp, and shared memory for a vector.
extern "C" __global__ void __launch_bounds__(SPLIT_COMBINE_WARPS *WARP)
    attention_decode_combine(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ __align__(16) float values[];
    int row = (int)blockIdx.y, warp = (int)blockIdx.x * block_warps() + warp_index(), last = 0, dim = p.cache.v_dim;
    bool rotated = p.cache.v.dtype == DTYPE_INT4_TOKEN, few = p.sequences <= SPLIT_COMBINE_FEW;
    launch_next();
    struct combine_pair own = combine_pair(p, warp + lane_index() * (int)gridDim.x * block_warps(), row);
    if (few)
        last = (1 << split_log_results(max(own.rows, 1))) - 1;
    wait_for_previous();
    if (!few && own.rows)
        last = (int)work_partials(p, own.sequence, own.rows, row, own.head)[dim + SPLIT_CHUNKS] - 1;
    for (unsigned left = __ballot_sync(WARP_ALL, own.rows && (last || rotated)); left; left &= left - 1) {
        int lane = __ffs((int)left) - 1, head = __shfl_sync(WARP_ALL, own.head, lane);
        int rows = __shfl_sync(WARP_ALL, own.rows, lane), first = __shfl_sync(WARP_ALL, own.first, lane);
        const float *partials = work_partials(p, __shfl_sync(WARP_ALL, own.sequence, lane), rows, row, head);
        uint16_t *out = p.out + ((size_t)(first + row) * (size_t)p.heads + (size_t)head) * (size_t)dim;
        combine(p, partials, __shfl_sync(WARP_ALL, last, lane), head, out, rotated ? values : NULL);
        if (rotated)
            unrotate(values, dim, out);
    }
}

#endif
