// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_result.cuh: from the sums of parts to decode attention's result, along the tree of
// attention_split.h: a warp adds up its parts, a block its warps. A sequence of one chunk is then finished; of several,
// each leaves its sums behind (work_partials), and a second kernel adds them up.
#ifndef KERNEL_CUDA_ATTENTION_RESULT_CUH
#define KERNEL_CUDA_ATTENTION_RESULT_CUH

#include "kernel/cuda/attention_step.cuh"

// What a value of V is worth that is dequantised as 1.
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

// What sums under this maximum are to be multiplied with, once all parts are in: the sink takes part here.
DEVICE float finish_factor(const struct cuda_attention &p, int head, float maximum, float sum)
{
    float top = maximum, sink = p.sinks ? p.sinks[head] * LOG2_E : SCORE_NONE;
    top = fmaxf(top, sink);
    float keep = power_of_two(maximum - top);
    return __fdividef(keep, sum * keep + power_of_two(sink - top));
}

// ---- within a warp ----

// Lanes whose columns are those of a second part have a maximum above all scores until its turn: they add nothing.
template <int D> DEVICE void running_clear(const struct piece &piece, struct running<D> *state)
{
    *state = {};
    state->maximum[0] = state->maximum[1] = piece.narrow && lane_index() % 4 >= 2 ? SCORE_ALL : SCORE_NONE;
}

// What two parts in one warp are together, or four: columns 2 (t % 2) and the one after, and of the channels of
// running.out the lower four of eight where t < 2, else the upper four.
template <int D> struct node {
    float maximum[2], sum[2];
    float x[D / 16][2];
};

// The second part is COLUMNS / 2 columns, and two lanes, away.
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

// Adds a neighbour.
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

// ---- within a block ----

// A warp leaves its sums as [items][lane][COUNT], each item some neighbouring channels of a column, then the columns'
// maxima and sums of shares. Of parts alone there are items of four, of nodes as many items of two.
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

// What COUNT neighbours are together, a power of two.
template <int COUNT> DEVICE float tree_sum(float x[COUNT])
{
#pragma unroll
    for (int step = 1; step < COUNT; step *= 2)
#pragma unroll
        for (int i = 0; i < COUNT; i += 2 * step)
            x[i] += x[i + step];
    return x[0];
}

// COUNT channels from `at` on of a column: finished, of a sequence of one chunk, or as what this chunk leaves behind.
template <class W, int COUNT>
DEVICE void result_write(const struct cuda_attention &p, const struct piece &piece, const struct column &column, int at,
                         float maximum, float sum, const float x[COUNT])
{
    constexpr int D = W::D;
    float *partial = work_partials(p, piece.sequence, piece.rows, column.row, column.head)
        + piece.chunk * (D + SPLIT_TAIL);
    if (W::V != FORM_INT4 && piece.chunks == 1) {
        float factor = finish_factor(p, column.head, maximum, sum) * unit_of(p.cache.v, D);
        uint16_t *out = p.out + ((size_t)(piece.first + column.row) * (size_t)p.heads + (size_t)column.head) * D + at;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2)
            ((uint32_t *)out)[i / 2] = bf16_pair(x[i] * factor, x[i + 1] * factor);
    } else
#pragma unroll
        for (int i = 0; i < COUNT; i += 2)
            *(float2 *)(partial + at + i) = make_float2(x[i], x[i + 1]);
    if (at == 0)
        *(float4 *)(partial + D) = make_float4(maximum, sum, (float)piece.chunks, 0);
}

// Adds up an item of all warps and writes it.
template <class W, int COUNT>
DEVICE void result_add(const struct cuda_attention &p, const struct piece &piece, const float *const from[W::WARPS],
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
    struct column column = column_of(p, piece, index);
    int at = g * (D / 8) + (COUNT == 4 ? item / 2 * 4 : item / 4 * 8 + t / 2 * 4 + item / 2 % 2 * 2);
    if (has_query(p, piece, column))
        result_write<W, COUNT>(p, piece, column, at, top, sum, x);
}

// A piece is done: its warps leave their results in shared memory and add them up, some channels each.
template <class W>
DEVICE void piece_end(const struct cuda_attention &p, const struct piece &piece, uint8_t *shared, int free_stage,
                      const struct running<W::D> &state, const struct node<W::D> &kept)
{
    __shared__ int places[W::WARPS];
    int place = warp_index() * W::RING_BYTES + free_stage * W::STAGE_BYTES;
    float *own = (float *)(shared + place);
    __syncwarp();
    if (piece.narrow) {
        struct node<W::D> node;
        node_make(state, &node);
        if (W::PARTS_MOST > 2 && piece.parts > 2)
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
        if (piece.narrow)
            result_add<W, 2>(p, piece, from, i);
        else
            result_add<W, 4>(p, piece, from, i);
    __syncthreads();
}

// ---- across chunks ----

// The most results of one row and head. Where sequences are likely to be of one chunk each, nothing is read that will
// not be needed.
enum { MERGE_RESULTS = 1 << SPLIT_LOG_RESULTS };
static_assert(MERGE_RESULTS <= WARP, "one for each lane");

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

// One vector, by a block of one warp. Inlined, what is the same for all vectors would stand in everybody's way.
static __device__ __noinline__ void unrotate(float *values, int dim, uint16_t *out)
{
    hadamard(values, dim);
    flip_signs(values, dim);
    for (int i = 2 * lane_index(); i < dim; i += 2 * WARP)
        *(uint32_t *)(out + i) = bf16_pair(values[i], values[i + 1]);
    __syncwarp();
}

// One row and head, by a warp, to `out`, or, where values are rotated, to `rotated`. All loads are under way before the
// first is used, that of the number of chunks among them, but none behind chunk `last`.
DEVICE void merge(const struct cuda_attention &p, const float *partials, int last, int head, uint16_t *out,
                  float *rotated)
{
    int dim = p.cache.v_dim, each = dim + SPLIT_TAIL;
    for (int base = 0; base < dim; base += 4 * WARP) {
        int at = base + 4 * lane_index(), chunks = (int)partials[dim + SPLIT_CHUNKS];
        float2 tail = *(const float2 *)(partials + min(lane_index(), last) * each + dim); // of this lane's chunk
        __align__(16) float x[MERGE_RESULTS][4] = {}, all[4];
#pragma unroll
        for (int i = 0; i < MERGE_RESULTS; i++)
            if (i <= last && at < dim)
                *(float4 *)x[i] = *(const float4 *)(partials + i * each + at);
        if (chunks == 1 && !rotated)
            return; // it is finished already
        bool there = lane_index() < chunks;
        float top = lanes_max(there ? tail.x : SCORE_NONE), weight = weight_of(tail.x, top);
        float sum = there ? weight * tail.y : 0, weights[MERGE_RESULTS];
#pragma unroll
        for (int step = 1; step < WARP; step *= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
#pragma unroll
        for (int i = 0; i < MERGE_RESULTS; i++)
            weights[i] = __shfl_sync(WARP_ALL, weight, i);
        float factor = finish_factor(p, head, top, sum) * unit_of(p.cache.v, dim);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float sums[MERGE_RESULTS];
#pragma unroll
            for (int i = 0; i < MERGE_RESULTS; i++)
                sums[i] = i < chunks ? weights[i] * x[i][c] : 0;
            all[c] = tree_sum<MERGE_RESULTS>(sums) * factor;
        }
        if (at < dim && rotated)
            *(float4 *)(rotated + at) = *(float4 *)all;
        else if (at < dim)
            *(uint2 *)(out + at) = make_uint2(bf16_pair(all[0], all[1]), bf16_pair(all[2], all[3]));
    }
}

// A sequence and a head of which a row may be left to be added up; no rows: it is none of ours.
struct merge_pair {
    int sequence, head, first, rows;
};

DEVICE struct merge_pair merge_pair(const struct cuda_attention &p, int pair, int row)
{
    int sequence = divide(pair, p.heads);
    if (sequence >= p.sequences)
        return {};
    int first = p.batch.first[sequence], rows = p.batch.count[sequence], sequences = p.batch.counts[CUDA_SEQUENCES];
    bool is_ours = sequence < sequences && rows >= p.rows_min && rows <= p.rows_max && row < rows;
    return { sequence, pair - sequence * p.heads, first, is_ours ? rows : 0 };
}

// Block (pairs, row of a sequence): pairs are dealt out to all warps in turn, up to one for each lane, which finds out
// about it. There is one warp, and shared memory for a vector, where values are rotated.
extern "C" __global__ void __launch_bounds__(SPLIT_COMBINE_WARPS *WARP)
    attention_decode_combine(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ __align__(16) float values[];
    int row = (int)blockIdx.y, warp = (int)blockIdx.x * block_warps() + warp_index(), last = 0, dim = p.cache.v_dim;
    bool rotated = p.cache.v.dtype == DTYPE_INT4_TOKEN, few = p.sequences <= SPLIT_COMBINE_FEW;
    launch_next();
    struct merge_pair own = merge_pair(p, warp + lane_index() * (int)gridDim.x * block_warps(), row);
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
        merge(p, partials, __shfl_sync(WARP_ALL, last, lane), head, out, rotated ? values : NULL);
        if (rotated)
            unrotate(values, dim, out);
    }
}

#endif
