// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_plain.cuh: decode attention without tensor cores, for every pair of cache formats and every
// even head size. Values are dequantised one pair at a time, in f32, straight from the pages; the work list and the
// results of chunks are those of the other decode kernels.
#ifndef KERNEL_CUDA_ATTENTION_PLAIN_CUH
#define KERNEL_CUDA_ATTENTION_PLAIN_CUH

#include "kernel/cuda/attention_result.cuh"

enum { PLAIN_WARPS = 4, PLAIN_DIM_MAX = 256, LANE_PAIRS = PLAIN_DIM_MAX / (2 * WARP) };

// The sums of a column in a lane: channels 2 lane + 64 i and the next.
struct plain_running {
    float maximum[COLUMNS], sum[COLUMNS];
    float2 out[COLUMNS][LANE_PAIRS];
};

struct plain_shared {
    float query[COLUMNS][PLAIN_DIM_MAX];
    float prob[PLAIN_WARPS][PAGE_TOKENS][COLUMNS];
    struct plain_running node[PLAIN_WARPS / 2][WARP];
};

// K or V of one KV head in one page.
struct plain_side {
    const uint8_t *data, *scales;
    const struct cuda_side *side;
};

// Channels 2 pair and 2 pair + 1 of a token, in units of unit_of.
DEVICE float2 plain_pair(const struct plain_side &page, int token, int pair)
{
    const uint8_t *data = page.data + token * page.side->data_bytes;
    const uint8_t *scales = page.scales + token * page.side->scale_bytes;
    switch (page.side->dtype) {
    case DTYPE_F32: return ((const float2 *)data)[pair];
    case DTYPE_F16: {
        uint32_t codes = ((const uint32_t *)data)[pair];
        return make_float2(f16_to_f32((uint16_t)codes), f16_to_f32((uint16_t)(codes >> 16)));
    }
    case DTYPE_BF16: {
        uint32_t codes = ((const uint32_t *)data)[pair];
        return make_float2(bf16_low(codes), bf16_high(codes));
    }
    case DTYPE_FP8_E5M2: return make_float2(e5m2_to_f32(data[2 * pair]), e5m2_to_f32(data[2 * pair + 1]));
    case DTYPE_INT8_TOKEN: {
        float scale = *(const float *)scales / INT8_UNIT;
        return make_float2((float)(int8_t)data[2 * pair] * scale, (float)(int8_t)data[2 * pair + 1] * scale);
    }
    case DTYPE_INT4_TOKEN: {
        uint32_t bits = *(const uint32_t *)scales, zero = bits & 15;
        float scale = __uint_as_float(bits & ~15u);
        return make_float2((float)((int)(data[pair] & 15) - (int)zero) * scale,
                           (float)((int)(data[pair] >> 4) - (int)zero) * scale);
    }
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: {
        float scale = e4m3_to_f32(scales[pair / 8]) / E2M1_UNIT;
        return make_float2(e2m1_to_f32(data[pair]) * scale, e2m1_to_f32(data[pair] >> 4) * scale);
    }
    default: { // E4M3, with a scale per token or without
        float scale = page.side->scale_bytes ? *(const float *)scales : 1.0f;
        return make_float2(e4m3_to_f32(data[2 * pair]) * scale, e4m3_to_f32(data[2 * pair + 1]) * scale);
    }
    }
}

DEVICE struct plain_side plain_page(const struct cuda_place &place, const struct cuda_side &side, int32_t page,
                                    int head)
{
    const uint8_t *at = place.pool + (uint64_t)(uint32_t)page * place.page_bytes;
    uint32_t vector = (uint32_t)head * PAGE_TOKENS;
    return { at + side.data + vector * side.data_bytes, at + side.scales + vector * side.scale_bytes, &side };
}

DEVICE void plain_queries(const struct cuda_attention &p, const struct work_tile &tile, struct plain_shared *shared)
{
    int dim = p.cache.k_dim, columns = tile.rows * p.group - tile.column_tile * COLUMNS;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < COLUMNS * dim; i += (int)blockDim.x) {
        struct column column = column_of(p, tile, i / dim);
        size_t at = (size_t)(tile.first + column.row) * (size_t)p.heads + (size_t)column.head;
        shared->query[i / dim][i % dim] = has_query(p, tile, column)
            ? bf16_to_f32(p.q[at * (size_t)dim + (size_t)(i % dim)])
            : 0.0f;
    }
    __syncthreads();
    if (p.cache.k.dtype == DTYPE_INT4_TOKEN)
        for (int i = 0; i < min(columns, COLUMNS); i++) {
            flip_signs(shared->query[i], dim);
            hadamard(shared->query[i], dim);
        }
}

// The scores of a page's tokens: lanes t and t + 16 each have half of the channels of token t.
DEVICE void plain_scores(const struct cuda_attention &p, const struct plain_side &k, const struct plain_shared *shared,
                         bool seen, float score[COLUMNS])
{
    int token = lane_index() % PAGE_TOKENS, pairs = p.cache.k_dim / 2, half = lane_index() / PAGE_TOKENS;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        score[c] = 0;
    for (int pair = half; seen && pair < pairs; pair += 2) {
        float2 x = plain_pair(k, token, pair);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            float2 q = *(const float2 *)&shared->query[c][2 * pair];
            score[c] += q.x * x.x + q.y * x.y;
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        score[c] += __shfl_xor_sync(WARP_ALL, score[c], PAGE_TOKENS);
}

// One page of the cache or of the sink. `start`: the first token that is seen.
DEVICE void plain_step(const struct cuda_attention &p, const struct work_tile &tile, const struct cuda_place &place,
                       int32_t page, int base, int start, struct plain_shared *shared, struct plain_running *state)
{
    int group = p.group, lane = lane_index(), token = base + lane % PAGE_TOKENS;
    int from = max(start - base, 0), to = min(tile.last + 1 - base, (int)PAGE_TOKENS);
    struct plain_side v = plain_page(place, place.v, page, tile.head);
    float unit = unit_of(place.v, p.cache.v_dim) / unit_of(p.cache.v, p.cache.v_dim); // sums are in the cache's
    float (*prob)[COLUMNS] = shared->prob[warp_index()], score[COLUMNS];
    bool seen = token >= start && token <= tile.last;
    plain_scores(p, plain_page(place, place.k, page, tile.head), shared, seen, score);
    __syncwarp();
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        int row = (tile.column_tile * COLUMNS + c) / group, position = tile.last - tile.rows + 1 + row;
        float x = score[c] * (p.scale * LOG2_E * unit_of(place.k, p.cache.k_dim));
        x = p.softcap > 0 ? cap(x, p.softcap * LOG2_E) : x;
        x = token < first_seen(p, position) || token > position ? -INFINITY : x;
        float top = fmaxf(state->maximum[c], floorf(lanes_max(x))), keep = weight_of(state->maximum[c], top);
        x = power_of_two(x - top);
        state->maximum[c] = top;
        state->sum[c] = state->sum[c] * keep + lanes_sum(lane < PAGE_TOKENS ? x : 0);
        if (lane < PAGE_TOKENS)
            prob[lane][c] = x * unit;
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; i++)
            state->out[c][i].x *= keep, state->out[c][i].y *= keep;
    }
    __syncwarp();
    for (int t = from; t < to; t++)
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; i++) {
            int pair = lane + i * WARP;
            float2 x = 2 * pair < p.cache.v_dim ? plain_pair(v, t, pair) : make_float2(0, 0);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                state->out[c][i].x += prob[t][c] * x.x, state->out[c][i].y += prob[t][c] * x.y;
        }
}

// Adds the splits of another warp.
DEVICE void plain_add(struct plain_running *state, const struct plain_running *other)
{
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        float top = fmaxf(state->maximum[c], other->maximum[c]);
        float own = weight_of(state->maximum[c], top), theirs = weight_of(other->maximum[c], top);
        state->maximum[c] = top;
        state->sum[c] = state->sum[c] * own + other->sum[c] * theirs;
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; i++) {
            state->out[c][i].x = state->out[c][i].x * own + other->out[c][i].x * theirs;
            state->out[c][i].y = state->out[c][i].y * own + other->out[c][i].y * theirs;
        }
    }
}

// Combines neighbouring warps first; the first warp ends up with the sum.
DEVICE void plain_add_warps(struct plain_shared *shared, struct plain_running *state)
{
    for (int step = 1; step < PLAIN_WARPS; step *= 2) {
        struct plain_running *node = &shared->node[warp_index() / (2 * step)][lane_index()];
        if (warp_index() % (2 * step) == step)
            *node = *state;
        __syncthreads();
        if (warp_index() % (2 * step) == 0)
            plain_add(state, node);
        __syncthreads();
    }
}

// Writes the result or the chunk's sums, by the first warp.
DEVICE void plain_write(const struct cuda_attention &p, const struct work_tile &tile, const struct plain_running &state)
{
    int dim = p.cache.v_dim;
    bool finished = tile.chunks == 1 && p.cache.v.dtype != DTYPE_INT4_TOKEN;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        struct column column = column_of(p, tile, c);
        if (!has_query(p, tile, column))
            continue;
        float *partial = work_partials(p, tile.sequence, tile.rows, column.row, column.head)
            + tile.chunk * (dim + SPLIT_TAIL);
        uint16_t *out = p.out
            + ((size_t)(tile.first + column.row) * (size_t)p.heads + (size_t)column.head) * (size_t)dim;
        float factor = finish_factor(p, column.head, state.maximum[c], state.sum[c]) * unit_of(p.cache.v, dim);
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; i++) {
            int at = 2 * (lane_index() + i * WARP);
            if (at < dim && finished)
                *(uint32_t *)(out + at) = bf16_pair(state.out[c][i].x * factor, state.out[c][i].y * factor);
            else if (at < dim)
                *(float2 *)(partial + at) = state.out[c][i];
        }
        if (lane_index() == 0)
            *(float4 *)(partial + dim) = make_float4(state.maximum[c], state.sum[c], (float)tile.chunks, 0);
    }
}

DEVICE void plain_clear(struct plain_running *state)
{
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        state->maximum[c] = SCORE_NONE, state->sum[c] = 0;
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; i++)
            state->out[c][i] = make_float2(0, 0);
    }
}

// This warp's split of a work tile.
DEVICE void plain_split(const struct cuda_attention &p, const struct work_tile &tile, struct plain_shared *shared,
                        struct plain_running *state)
{
    constexpr int PAGES = SPLIT_TOKENS / PAGE_TOKENS;
    const int32_t *table = p.batch.tables + tile.table_at;
    int from = max(split_begin(tile, tile.split) * PAGES, tile.start / PAGE_TOKENS);
    int to = min(split_begin(tile, tile.split + 1) * PAGES, tile.last / PAGE_TOKENS + 1);
    int seen = first_seen(p, tile.last - tile.rows + 1), sinks = min(p.sink_pages, tile.last / PAGE_TOKENS + 1);
    plain_clear(state);
    for (int page = seen / PAGE_TOKENS; page < sinks && tile.split == 0; page++) {
        const int32_t *first = p.batch.tables
            + p.batch.table_at[p.sink.class_index * p.batch.sequences_max + tile.sequence];
        plain_step(p, tile, p.sink, first[page], page * PAGE_TOKENS, seen, shared, state);
    }
    for (int page = from; page < to && tile.splits > 0; page++)
        plain_step(p, tile, p.cache, table[page], page * PAGE_TOKENS, tile.start, shared, state);
}

extern "C" __global__ void __launch_bounds__(PLAIN_WARPS *WARP)
    attention_decode_plain(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ struct sequence_work list_of_work[];
    __shared__ struct plain_shared shared;
    kernel_begin();
    const struct work work = work_list(p, list_of_work);
    struct work_tile tile;
    for (int i = (int)blockIdx.x; work_find(p, work, i, &tile); i += (int)gridDim.x) {
        struct plain_running state;
        plain_queries(p, tile, &shared);
        plain_split(p, tile, &shared, &state);
        plain_add_warps(&shared, &state);
        if (warp_index() == 0)
            plain_write(p, tile, state);
    }
}

#endif
