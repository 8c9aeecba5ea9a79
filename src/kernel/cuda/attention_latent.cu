// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_latent.cu: multi-head latent attention with absorbed weights (MLA, as FlashMLA), for decode and
// prefill: keys are latents, and their first channels are the values. A step's latents are dequantised to bfloat16 in
// shared memory once, and serve as K and as V for all queries of a block. A block has eight warps, two for each sixteen
// queries. Each of the two has half of the channels of K for scores, and half of those of V for results.
#include "kernel/cuda/common.cuh"
#include "kernel/cuda/latent_split.h"

#define LOG2_E 1.4426950408889634f

enum { TILE = 16, STEPS_MAX = (LATENT_DIM_MAX / TILE + 1) / 2, SUMS_MAX = HEAD_DIM_MAX / TILE }; // of a warp
enum { SCORE_TILES = LATENT_TOKENS / 8 };

struct shared_latents {
    uint16_t value[2][LATENT_TOKENS][LATENT_ROW];
    float score[2][LATENT_QUERIES][LATENT_SCORES]; // by half of the channels
};
static_assert(sizeof(struct shared_latents) == LATENT_SHARED_BYTES, "the launch asks for this much");

// A block's queries, and the tokens that they see.
struct view {
    int sequence, row, rows; // the first row, and how many
    int head, heads;         // the first head, and how many
    int last;                // the last row's position
    int begin, end;          // tokens to walk
    int split, splits;
    const int32_t *table;
};

DEVICE void load_four(uint32_t to[4], const void *from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(from))
                 : "memory");
}

DEVICE void load_four_transposed(uint32_t to[4], const void *from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(from))
                 : "memory");
}

DEVICE void multiply(float sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- work of a block ----

DEVICE int first_seen(const struct cuda_attention &p, int position)
{
    return p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
}

// False: this block has nothing to do. The grid has a block for every row, though a block may take several rows.
DEVICE bool view_find(const struct cuda_attention &p, struct view *out)
{
    int blocks = latent_ctas(p.heads), row = (int)blockIdx.x / blocks, split = (int)blockIdx.y;
    if (row >= p.batch.counts[CUDA_TOKENS])
        return false;
    int sequence = p.batch.sequence_of[row], within = row - p.batch.first[sequence];
    int count = p.batch.count[sequence], each = latent_rows(p.heads);
    if (within % each)
        return false;
    out->sequence = sequence, out->row = row, out->rows = min(each, count - within);
    out->head = (int)blockIdx.x % blocks * LATENT_QUERIES, out->heads = min(p.heads - out->head, (int)LATENT_QUERIES);
    out->last = p.batch.positions[row] + out->rows - 1;
    out->begin = first_seen(p, p.batch.positions[row]), out->end = out->last + 1;
    out->split = split, out->splits = count == 1 ? latent_splits(out->end, p.heads) : 1;
    out->table = p.batch.tables + p.batch.table_at[p.cache.class_index * p.batch.sequences_max + sequence];
    if (out->splits > 1) {
        int shift = latent_shift(out->end, p.heads);
        out->begin = max(out->begin, split << shift);
        out->end = min(out->end, (split + 1) << shift);
    }
    return split < out->splits;
}

// The position of a query, and its index among all; false if there is none.
struct query {
    int position;
    size_t at; // (row, head)
};

DEVICE bool query_find(const struct cuda_attention &p, const struct view &view, int index, struct query *out)
{
    int row = index / view.heads, head = view.head + index % view.heads;
    out->position = view.last - view.rows + 1 + row;
    out->at = (size_t)(view.row + row) * (size_t)p.heads + (size_t)head;
    return row < view.rows;
}

// ---- latents into shared memory ----

// A minifloat as f32: its exponent and mantissa are shifted into those of an f32, and `unit` makes up for the
// difference of their biases. The codes of infinity and NaN become numbers.
DEVICE float small_float(uint32_t code, int bits, int shift, float unit)
{
    uint32_t sign = code >> (bits - 1) & 1, magnitude = code & ((1u << (bits - 1)) - 1);
    return __uint_as_float(sign << 31 | magnitude << shift) * unit;
}

DEVICE float e4m3_value(uint32_t code) { return small_float(code & 0xFF, 8, 20, 0x1p120f); }
DEVICE float e5m2_value(uint32_t code) { return small_float(code & 0xFF, 8, 21, 0x1p112f); }
DEVICE float e2m1_value(uint32_t code) { return small_float(code & 15, 4, 22, 0x1p126f); }

// Eight channels of a token as bfloat16, in units of unit_of.
DEVICE uint4 dequantise_eight(const struct cuda_side &side, const uint8_t *data, const uint8_t *scales, int at)
{
    float x[8], scale = 1;
    switch (side.dtype) {
    case DTYPE_F32: f32_load((const float *)data + at, x); break;
    case DTYPE_F16:
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = f16_to_f32(((const uint16_t *)data)[at + i]);
        break;
    case DTYPE_FP8_E5M2: {
        uint2 codes = *(const uint2 *)(data + at);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = e5m2_value((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
        break;
    }
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: {
        uint32_t codes = *(const uint32_t *)(data + at / 2);
        scale = e4m3_value(scales[at / 16]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = e2m1_value(codes >> i * 4) * scale;
        break;
    }
    case DTYPE_FP8_DS_MLA:
        if (at >= KV_RECORD_LATENT)
            return *(const uint4 *)(data + KV_RECORD_TURNED_AT + 2 * (at - KV_RECORD_LATENT));
        scale = ((const float *)(data + KV_RECORD_SCALES_AT))[at / KV_RECORD_GROUP];
        [[fallthrough]];
    default: { // E4M3
        uint2 codes = *(const uint2 *)(data + at);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = e4m3_value((i < 4 ? codes.x : codes.y) >> i % 4 * 8) * scale;
    }
    }
    return make_uint4(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7]));
}

// Tokens [base, base + LATENT_TOKENS). Tokens that no row sees become 0, since 0 times NaN is NaN.
DEVICE void step_fetch(const struct cuda_attention &p, const struct view &view, int base, uint16_t (*to)[LATENT_ROW])
{
    enum { FETCH_THREADS = LATENT_THREADS / LATENT_TOKENS }; // threads that fetch one token
    const struct cuda_side &side = p.cache.k;
    int slot = (int)threadIdx.x / FETCH_THREADS, token = base + slot;
    bool seen = token >= view.begin && token < view.end;
    int32_t number = seen ? view.table[token / KV_PAGE_TOKENS] : 0;
    const uint8_t *page = p.cache.pool + (uint64_t)number * p.cache.page_bytes;
    const uint8_t *data = page + side.data + token % KV_PAGE_TOKENS * side.data_bytes;
    const uint8_t *scales = page + side.scales + token % KV_PAGE_TOKENS * side.scale_bytes;
    for (int at = (int)threadIdx.x % FETCH_THREADS * 8; at < p.cache.k_dim; at += FETCH_THREADS * 8) {
        uint16_t *out = &to[slot][at];
        if (!seen)
            *(uint4 *)out = make_uint4(0, 0, 0, 0);
        else if (side.dtype == DTYPE_BF16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(out)), "l"(data + 2 * at)
                         : "memory");
        else
            *(uint4 *)out = dequantise_eight(side, data, scales, at);
    }
    copies_commit();
}

// ---- scores, online softmax, weighted sums ----

// A warp's half of its sixteen queries. A lane has rows lane / 4 and lane / 4 + 8.
struct running {
    uint32_t query[STEPS_MAX][4]; // the channels of its half
    float maximum[2], sum[2];
    float out[SUMS_MAX][4]; // the channels of V of its half
};

DEVICE int warp_group() { return warp_index() / 2; }
DEVICE int warp_half() { return warp_index() % 2; }

// The first of the half's tiles of K, and how many it has.
DEVICE int half_first(const struct cuda_attention &p) { return warp_half() ? (p.cache.k_dim / TILE + 1) / 2 : 0; }
DEVICE int half_tiles(const struct cuda_attention &p)
{
    return warp_half() ? p.cache.k_dim / TILE / 2 : (p.cache.k_dim / TILE + 1) / 2;
}

DEVICE void running_begin(const struct cuda_attention &p, const struct view &view, struct running *state)
{
    int first = half_first(p) * TILE + lane_index() % 4 * 2, tiles = half_tiles(p);
    const uint16_t *rows[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        struct query query;
        bool there = query_find(p, view, warp_group() * TILE + lane_index() / 4 + i * 8, &query);
        rows[i] = there ? p.q + query.at * (size_t)p.cache.k_dim + first : NULL;
        state->maximum[i] = -INFINITY, state->sum[i] = 0;
    }
#pragma unroll
    for (int step = 0; step < STEPS_MAX; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint16_t *row = rows[i % 2];
            state->query[step][i] = row && step < tiles ? *(const uint32_t *)(row + step * TILE + i / 2 * 8) : 0;
        }
#pragma unroll
    for (int i = 0; i < SUMS_MAX; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            state->out[i][j] = 0;
}

// The scores, summed over this warp's half of the channels.
DEVICE void step_scores(const struct cuda_attention &p, const struct running *state, uint16_t (*value)[LATENT_ROW],
                        float (*score)[LATENT_SCORES])
{
    int tiles = half_tiles(p), lane = lane_index(), matrix = lane / 8;
    const uint16_t *at = &value[matrix / 2 * 8 + lane % 8][half_first(p) * TILE + matrix % 2 * 8];
    float sum[SCORE_TILES][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS_MAX; step++) {
        if (step >= tiles)
            break;
#pragma unroll
        for (int pair = 0; pair < SCORE_TILES / 2; pair++) {
            uint32_t k[4];
            load_four(k, at + pair * 16 * LATENT_ROW + step * TILE);
            multiply(sum[2 * pair], state->query[step], k[0], k[1]);
            multiply(sum[2 * pair + 1], state->query[step], k[2], k[3]);
        }
    }
    int row = warp_group() * TILE + lane / 4;
#pragma unroll
    for (int i = 0; i < SCORE_TILES; i++) {
        *(float2 *)&score[row][i * 8 + lane % 4 * 2] = make_float2(sum[i][0], sum[i][1]);
        *(float2 *)&score[row + 8][i * 8 + lane % 4 * 2] = make_float2(sum[i][2], sum[i][3]);
    }
}

// A score as the softmax reads it; -INFINITY if the row does not see the token.
DEVICE float score_finish(const struct cuda_attention &p, const struct view &view, float x, float scale, int position,
                          int token)
{
    x *= scale;
    x = p.softcap > 0 ? p.softcap * LOG2_E * tanhf(x / (p.softcap * LOG2_E)) : x;
    bool seen = token >= max(first_seen(p, position), view.begin) && token <= position && token < view.end;
    return seen ? x : -INFINITY;
}

// The probabilities of one of a lane's two rows; returns the factor by which its earlier sums are rescaled.
DEVICE float step_probs(const struct cuda_attention &p, const struct view &view, const struct shared_latents *shared,
                        int base, int own, float scale, struct running *state, float prob[SCORE_TILES][2])
{
    struct query query;
    int index = warp_group() * TILE + lane_index() / 4 + own * 8;
    bool there = query_find(p, view, index, &query);
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < SCORE_TILES; i++) {
        int at = i * 8 + lane_index() % 4 * 2;
        float2 a = *(const float2 *)&shared->score[0][index][at], b = *(const float2 *)&shared->score[1][index][at];
        prob[i][0] = there ? score_finish(p, view, a.x + b.x, scale, query.position, base + at) : -INFINITY;
        prob[i][1] = there ? score_finish(p, view, a.y + b.y, scale, query.position, base + at + 1) : -INFINITY;
        top = fmaxf(top, fmaxf(prob[i][0], prob[i][1]));
    }
    top = fmaxf(lanes_max(top, 4), state->maximum[own]);
    float safe = top == -INFINITY ? 0 : top, keep = exp2f(state->maximum[own] - safe);
    state->maximum[own] = top;
    state->sum[own] *= keep;
#pragma unroll
    for (int i = 0; i < SCORE_TILES; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            prob[i][j] = exp2f(prob[i][j] - safe);
            state->sum[own] += prob[i][j];
        }
    return keep;
}

DEVICE void step_sums(const struct cuda_attention &p, uint16_t (*value)[LATENT_ROW],
                      const float prob[2][SCORE_TILES][2], const float keep[2], struct running *state)
{
    int tiles = p.cache.v_dim / TILE, lane = lane_index(), matrix = lane / 8; // of eight channels, half of V's
    const uint16_t *at = &value[matrix % 2 * 8 + lane % 8][warp_half() * tiles * 8 + matrix / 2 * 8];
    uint32_t a[SCORE_TILES / 2][4];
#pragma unroll
    for (int i = 0; i < SCORE_TILES / 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[i][j] = bf16_pair(prob[j % 2][2 * i + j / 2][0], prob[j % 2][2 * i + j / 2][1]);
    bool changed = __any_sync(WARP_ALL, keep[0] != 1 || keep[1] != 1);
#pragma unroll
    for (int tile = 0; tile < SUMS_MAX; tile += 2) {
        if (tile >= tiles)
            break;
#pragma unroll
        for (int j = 0; j < 8; j++)
            state->out[tile + j / 4][j % 4] *= changed ? keep[j % 4 / 2] : 1;
#pragma unroll
        for (int i = 0; i < SCORE_TILES / 2; i++) {
            uint32_t v[4];
            load_four_transposed(v, at + i * 16 * LATENT_ROW + tile * 8);
            multiply(state->out[tile], a[i], v[0], v[1]);
            if (tile + 1 < tiles)
                multiply(state->out[tile + 1], a[i], v[2], v[3]);
        }
    }
}

// ---- results ----

// The value that is dequantised as 1.
DEVICE float unit_of(const struct cuda_side &side)
{
    return side.dtype == DTYPE_FP8_E4M3 || side.dtype == DTYPE_FP8_E5M2 || side.dtype == DTYPE_NVFP4
            || side.dtype == DTYPE_NVFP4_4OVER6
        ? side.scale
        : 1;
}

// The factor that normalises sums under this maximum; the attention sink joins the softmax here.
DEVICE float finish_factor(const struct cuda_attention &p, int head, float maximum, float sum)
{
    float sink = p.sinks ? p.sinks[head] * LOG2_E : -INFINITY, top = fmaxf(maximum, sink);
    float keep = exp2f(maximum - top);
    return keep / (sum * keep + exp2f(sink - top)) * unit_of(p.cache.k);
}

DEVICE float *partial_at(const struct cuda_attention &p, int sequence, int split, int head)
{
    size_t at = ((size_t)sequence * (size_t)p.partials_each + (size_t)split) * (size_t)p.heads + (size_t)head;
    return p.partials + at * (size_t)(p.cache.v_dim + LATENT_TAIL);
}

DEVICE void running_end(const struct cuda_attention &p, const struct view &view, struct running *state)
{
    int tiles = p.cache.v_dim / TILE, first = warp_half() * tiles * 8 + lane_index() % 4 * 2;
#pragma unroll
    for (int own = 0; own < 2; own++) {
        struct query query;
        float sum = lanes_sum(state->sum[own], 4);
        if (!query_find(p, view, warp_group() * TILE + lane_index() / 4 + own * 8, &query))
            continue;
        int head = (int)(query.at % (size_t)p.heads);
        float factor = view.splits > 1 ? 1 : finish_factor(p, head, state->maximum[own], sum);
        uint16_t *out = p.out + query.at * (size_t)p.cache.v_dim + first;
        float *partial = view.splits > 1 ? partial_at(p, view.sequence, view.split, head) + first : NULL;
#pragma unroll
        for (int tile = 0; tile < SUMS_MAX; tile++) {
            if (tile >= tiles)
                break;
            float x = state->out[tile][2 * own] * factor, y = state->out[tile][2 * own + 1] * factor;
            if (partial)
                *(float2 *)(partial + tile * 8) = make_float2(x, y);
            else
                *(uint32_t *)(out + tile * 8) = bf16_pair(x, y);
        }
        if (partial && warp_half() == 0 && lane_index() % 4 == 0) {
            partial[p.cache.v_dim + LATENT_MAXIMUM] = state->maximum[own];
            partial[p.cache.v_dim + LATENT_SUM] = sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(LATENT_THREADS, 1)
    attention_latent(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ __align__(16) uint8_t memory[];
    struct shared_latents *shared = (struct shared_latents *)memory;
    kernel_begin();
    struct view view;
    if (!view_find(p, &view))
        return;
    struct running state;
    running_begin(p, view, &state);
    float scale = p.scale * LOG2_E * unit_of(p.cache.k);
    int base = view.begin / LATENT_TOKENS * LATENT_TOKENS, stage = 0;
    step_fetch(p, view, base, shared->value[0]);
    for (; base < view.end; base += LATENT_TOKENS, stage ^= 1) {
        copies_wait_all();
        __syncthreads();
        if (base + LATENT_TOKENS < view.end)
            step_fetch(p, view, base + LATENT_TOKENS, shared->value[stage ^ 1]);
        step_scores(p, &state, shared->value[stage], shared->score[warp_half()]);
        __syncthreads();
        float prob[2][SCORE_TILES][2], keep[2];
        keep[0] = step_probs(p, view, shared, base, 0, scale, &state, prob[0]);
        keep[1] = step_probs(p, view, shared, base, 1, scale, &state, prob[1]);
        step_sums(p, shared->value[stage], prob, keep, &state);
    }
    running_end(p, view, &state);
}

// Combines the KV splits of sequences with one row. Grid (head, sequence); a thread has every blockDim-th channel.
extern "C" __global__ void __launch_bounds__(128)
    attention_latent_combine(const __grid_constant__ struct cuda_attention p)
{
    kernel_begin();
    int head = (int)blockIdx.x, sequence = (int)blockIdx.y;
    if (sequence >= p.batch.counts[CUDA_SEQUENCES] || p.batch.count[sequence] != 1)
        return;
    int row = p.batch.first[sequence], dim = p.cache.v_dim;
    int splits = latent_splits(p.batch.positions[row] + 1, p.heads);
    if (splits == 1)
        return;
    const float *partial = partial_at(p, sequence, 0, head);
    size_t stride = (size_t)p.heads * (size_t)(dim + LATENT_TAIL);
    float top = -INFINITY, sum = 0;
    for (int i = 0; i < splits; i++)
        top = fmaxf(top, partial[i * stride + dim + LATENT_MAXIMUM]);
    for (int i = 0; i < splits; i++)
        sum += partial[i * stride + dim + LATENT_SUM] * exp2f(partial[i * stride + dim + LATENT_MAXIMUM] - top);
    float factor = finish_factor(p, head, top, sum);
    uint16_t *out = p.out + ((size_t)row * (size_t)p.heads + (size_t)head) * (size_t)dim;
    for (int channel = (int)threadIdx.x; channel < dim; channel += (int)blockDim.x) {
        float x = 0;
        for (int i = 0; i < splits; i++)
            x += partial[i * stride + channel] * exp2f(partial[i * stride + dim + LATENT_MAXIMUM] - top);
        out[channel] = bf16_round(x * factor);
    }
}
