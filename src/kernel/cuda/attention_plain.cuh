// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_plain.cuh: decode attention for what the tensor-core kernels do not have: any two formats, any
// even head size. Values are unpacked one pair at a time, in f32, straight from the pages; who does what, and what is
// left behind, is as with the others.
#ifndef KERNEL_CUDA_ATTENTION_PLAIN_CUH
#define KERNEL_CUDA_ATTENTION_PLAIN_CUH

#include "kernel/cuda/attention_result.cuh"

enum { PLAIN_WARPS = 4, LANE_PAIRS = HEAD_DIM_MAX / (2 * WARP) };

struct plain_shared {
    float query[COLUMNS][HEAD_DIM_MAX];
    float sums[COLUMNS][HEAD_DIM_MAX];
    float maximum[COLUMNS], sum[COLUMNS];
    float share[PLAIN_WARPS][PAGE_TOKENS][COLUMNS];
};

// A column's results in a lane: channels 2 lane + 64 i and the one after.
struct plain_running {
    float maximum[COLUMNS], sum[COLUMNS];
    float2 out[COLUMNS][LANE_PAIRS];
};

// One head's side of one page.
struct plain_side {
    const uint8_t *data, *scales;
    const struct cuda_side *side;
};

// Channels 2 pair and 2 pair + 1 of a token, in the side's unit (unit_of).
DEVICE float2 plain_pair(const struct plain_side &page, int token, int pair)
{
    const uint8_t *data = page.data + token * page.side->data_bytes;
    const uint8_t *scales = page.scales + token * page.side->scale_bytes;
    switch (page.side->dtype) {
    case DTYPE_F32:
        return ((const float2 *)data)[pair];
    case DTYPE_F16: {
        uint32_t codes = ((const uint32_t *)data)[pair];
        return make_float2(f16_to_f32((uint16_t)codes), f16_to_f32((uint16_t)(codes >> 16)));
    }
    case DTYPE_BF16: {
        uint32_t codes = ((const uint32_t *)data)[pair];
        return make_float2(bf16_low(codes), bf16_high(codes));
    }
    case DTYPE_FP8_E5M2:
        return make_float2(e5m2_to_f32(data[2 * pair]), e5m2_to_f32(data[2 * pair + 1]));
    case DTYPE_INT8_TOKEN: {
        float scale = *(const float *)scales;
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

DEVICE struct plain_side plain_page(const struct cuda_attention &p, const struct cuda_side &side, int32_t page,
                                    int head)
{
    const uint8_t *at = in_page(p, page, p.cache.pool);
    uint32_t vector = (uint32_t)head * PAGE_TOKENS;
    return { at + side.data + vector * side.data_bytes, at + side.scales + vector * side.scale_bytes, &side };
}

DEVICE void plain_queries(const struct cuda_attention &p, const struct piece &piece, struct plain_shared *shared)
{
    int group = group_of(p), dim = p.cache.k_dim, columns = piece.rows * group - piece.tile * COLUMNS;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < COLUMNS * dim; i += (int)blockDim.x) {
        int column = piece.tile * COLUMNS + i / dim, row = column / group, head = piece.head * group + column % group;
        const uint16_t *q = p.q + ((size_t)(piece.first + row) * (size_t)p.heads + (size_t)head) * (size_t)dim;
        shared->query[i / dim][i % dim] = i / dim < columns ? bf16_to_f32(q[i % dim]) : 0.0f;
    }
    __syncthreads();
    if (p.cache.k.dtype == DTYPE_INT4_TOKEN)
        for (int i = 0; i < min(columns, COLUMNS); i++) {
            flip_signs(shared->query[i], dim);
            hadamard(shared->query[i], dim);
        }
}

// The scores of a page's tokens: lanes t and t + 16 share token t and halves of its channels.
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

// Tokens [from, to) of a page.
DEVICE void plain_step(const struct cuda_attention &p, const struct piece &piece, int32_t page, int base,
                       struct plain_shared *shared, struct plain_running *state)
{
    int group = group_of(p), lane = lane_index(), token = base + lane % PAGE_TOKENS;
    int from = max(piece.start - base, 0), to = min(piece.last + 1 - base, (int)PAGE_TOKENS);
    struct plain_side v = plain_page(p, p.cache.v, page, piece.head);
    float (*share)[COLUMNS] = shared->share[warp_index()], score[COLUMNS];
    bool seen = token >= piece.start && token <= piece.last;
    plain_scores(p, plain_page(p, p.cache.k, page, piece.head), shared, seen, score);
    __syncwarp();
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        int row = (piece.tile * COLUMNS + c) / group, position = piece.last - piece.rows + 1 + row;
        float x = score[c] * (p.scale * LOG2_E * unit_of(p.cache.k, p.cache.k_dim));
        x = p.softcap > 0 ? cap(x, p.softcap * LOG2_E) : x;
        x = token < first_seen(p, position) || token > position ? -INFINITY : x;
        float top = fmaxf(state->maximum[c], lanes_max(x)), keep = power_of_two(state->maximum[c] - top);
        x = power_of_two(x - top);
        state->maximum[c] = top;
        state->sum[c] = state->sum[c] * keep + lanes_sum(lane < PAGE_TOKENS ? x : 0);
        if (lane < PAGE_TOKENS)
            share[lane][c] = x;
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
                state->out[c][i].x += share[t][c] * x.x, state->out[c][i].y += share[t][c] * x.y;
        }
}

// One warp after the other adds what it has.
DEVICE void plain_add(struct plain_shared *shared, int dim, const struct plain_running *state)
{
    for (int warp = 0; warp < PLAIN_WARPS; warp++) {
        if (warp_index() == warp)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float before = warp ? shared->maximum[c] : SCORE_NONE, top = fmaxf(before, state->maximum[c]);
                float keep = power_of_two(before - top), mine = power_of_two(state->maximum[c] - top);
                float sum = warp ? shared->sum[c] * keep : 0;
                __syncwarp();
                if (lane_index() == 0)
                    shared->maximum[c] = top, shared->sum[c] = sum + state->sum[c] * mine;
#pragma unroll
                for (int i = 0; i < LANE_PAIRS; i++) {
                    float2 *at = (float2 *)&shared->sums[c][2 * (lane_index() + i * WARP)];
                    float2 x = warp ? *at : make_float2(0, 0);
                    x = make_float2(x.x * keep + state->out[c][i].x * mine, x.y * keep + state->out[c][i].y * mine);
                    if (2 * (lane_index() + i * WARP) < dim)
                        *at = x;
                }
            }
        __syncthreads();
    }
}

DEVICE void plain_write(const struct cuda_attention &p, const struct piece &piece, const struct plain_shared *shared)
{
    int group = group_of(p), dim = p.cache.v_dim;
    int columns = min(piece.rows * group - piece.tile * COLUMNS, (int)COLUMNS);
    bool finished = piece.parts == 1 && p.cache.v.dtype != DTYPE_INT4_TOKEN;
    for (int c = warp_index(); c < columns; c += PLAIN_WARPS) {
        int column = piece.tile * COLUMNS + c, row = column / group, head = piece.head * group + column % group;
        float *partial = work_partials(p, piece.sequence, row, head, piece.parts) + piece.part * (dim + SPLIT_TAIL);
        uint16_t *out = p.out + ((size_t)(piece.first + row) * (size_t)p.heads + (size_t)head) * (size_t)dim;
        float factor = finish_factor(p, head, shared->maximum[c], shared->sum[c]) * unit_of(p.cache.v, dim);
        for (int i = lane_index(); i < dim; i += WARP) {
            if (finished)
                out[i] = bf16_round(shared->sums[c][i] * factor);
            else
                partial[i] = shared->sums[c][i];
        }
        if (!finished && lane_index() == 0) {
            partial[dim + SPLIT_MAXIMUM] = shared->maximum[c];
            partial[dim + SPLIT_SUM] = shared->sum[c];
        }
    }
}

extern "C" __global__ void __launch_bounds__(PLAIN_WARPS *WARP)
    attention_decode_plain(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ struct sequence_work list_of_work[];
    __shared__ struct plain_shared shared;
    kernel_begin();
    int sequences = p.batch.counts[CUDA_SEQUENCES];
    if (sequences == 0)
        return;
    work_list(p, list_of_work, sequences);
    struct piece piece;
    for (int i = (int)blockIdx.x; work_piece(p, list_of_work, sequences, i, &piece); i += (int)gridDim.x) {
        const int32_t *table =
            p.batch.tables + p.batch.table_at[p.cache.class_index * p.batch.sequences_max + piece.sequence];
        struct plain_running state;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            state.maximum[c] = SCORE_NONE, state.sum[c] = 0;
#pragma unroll
            for (int j = 0; j < LANE_PAIRS; j++)
                state.out[c][j] = make_float2(0, 0);
        }
        plain_queries(p, piece, &shared);
        int page = piece.begin / PAGE_TOKENS;
        for (page += warp_index() - page & (PLAIN_WARPS - 1); page * PAGE_TOKENS < piece.end; page += PLAIN_WARPS)
            plain_step(p, piece, table[page], page * PAGE_TOKENS, &shared, &state);
        plain_add(&shared, p.cache.v_dim, &state);
        plain_write(p, piece, &shared);
    }
}

#endif
