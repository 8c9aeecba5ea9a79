// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_rows.cuh: the query rows of a block of prefill attention: their queries, their online
// softmax and their results. The query heads that share a KV head (GQA) are packed as rows, row = token * group + head,
// so that K and V are read once for all of them. A warp keeps the rows of its accumulators from the first to the last
// step.
//   (1) accumulators are those of mma.m16n8: lane l of a warp has, of every eight columns, 2 * (l % 4) and the next, in
//       rows l / 4 (first two values) and l / 4 + 8 (last two) of each sixteen
//   (2) tiles of K and V begin at multiples of their size, and tokens that a row does not see change no bit of it: its
//       result depends on its own context only, not on the prefill chunk or the batch
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_ROWS_CUH
#define KERNEL_CUDA_ATTENTION_PREFILL_ROWS_CUH

#include "kernel/cuda/attention_prefill_dequantise.cuh"
#include "kernel/ref/kv_codec.h"

#define LOG2_E 1.4426950408889634f

// A run of rows of one sequence, and the positions that they see.
struct prefill_block {
    int kv_head, group;                // and how many heads of q share it
    const int32_t *pages, *sink_pages; // of the sequence
    int token;                         // of the batch: the sequence's first
    int row, rows;                     // of the sequence: the first here, and how many
    int position;                      // of the sequence's first token
    int first_seen, last_seen;
};

DEVICE int position_of(const struct prefill_block &block, int row)
{
    return block.position + (block.row + row) / block.group;
}

// The first query head that shares the block's KV head.
DEVICE int first_head(const struct cuda_attention &p, const struct prefill_block &block)
{
    return max(block.kv_head * p.group - p.lead, 0);
}

// Finds the index-th block of up to `size` rows of the KV head in `out`, among the sequences that this launch is for.
// Later rows, which see more, come first. Called by all lanes of a warp. False: there are fewer blocks. Every block
// waits for this, so the sequences are loaded before it is known which of them count.
DEVICE bool find_block(const struct cuda_attention &p, int index, int size, struct prefill_block &out)
{
    int group = min((out.kv_head + 1) * p.group - p.lead, p.heads) - first_head(p, out);
    int sequences = p.batch.counts[CUDA_SEQUENCES], before = 0;
    for (int base = 0; base == 0 || base < sequences; base += WARP) {
        int sequence = min(base + lane_index(), p.batch.sequences_max - 1), count = p.batch.count[sequence];
        int token = p.batch.first[sequence];
        int table = p.batch.table_at[p.cache.class_index * p.batch.sequences_max + sequence];
        int sink_table = p.batch.table_at[p.sink.class_index * p.batch.sequences_max + sequence];
        bool is_ours = base + lane_index() < sequences && count >= p.rows_min && count <= p.rows_max;
        int blocks = is_ours ? (count * group + size - 1) / size : 0, end = blocks;
        for (int step = 1; step < WARP; step *= 2) {
            int below = __shfl_up_sync(WARP_ALL, end, step);
            end += lane_index() >= step ? below : 0;
        }
        unsigned past = __ballot_sync(WARP_ALL, before + end > index);
        if (!past) {
            before += __shfl_sync(WARP_ALL, end, WARP - 1);
            continue;
        }
        int lane = __ffs(past) - 1;
        out.group = group;
        out.pages = p.batch.tables + __shfl_sync(WARP_ALL, table, lane);
        out.sink_pages = p.batch.tables + __shfl_sync(WARP_ALL, sink_table, lane);
        out.token = __shfl_sync(WARP_ALL, token, lane);
        out.position = p.batch.positions[out.token];
        out.row = (before + __shfl_sync(WARP_ALL, end, lane) - 1 - index) * size;
        out.rows = min(size, __shfl_sync(WARP_ALL, count, lane) * group - out.row);
        out.last_seen = position_of(out, out.rows - 1);
        out.first_seen = p.window > 0 ? max(0, position_of(out, 0) - p.window + 1) : 0;
        return true;
    }
    return false;
}

// The index of a row's vector in q and out.
DEVICE size_t vector_of(const struct cuda_attention &p, const struct prefill_block &block, int row)
{
    int token = (block.row + row) / block.group, head = (block.row + row) % block.group;
    return (size_t)(block.token + token) * p.heads + first_head(p, block) + head;
}

// ---- the rotation of int4_per_token_head (kernel/ref/kv_codec.h) ----

DEVICE bool is_negative(int channel) { return kv_rotation_signs(channel / 64) >> channel % 64 & 1; }
DEVICE float flip(float x, bool negative) { return negative ? -x : x; }

// One stage among lanes: `distance` apart are those whose channels are.
DEVICE float mix_lanes(float x, int distance)
{
    float other = __shfl_xor_sync(WARP_ALL, x, distance);
    return (lane_index() & distance ? -x : x) + other;
}

DEVICE void mix(float &a, float &b)
{
    float sum = a + b;
    b = a - b;
    a = sum;
}

// H s x of a vector whose chunks lie in neighbouring lanes, `chunk` here.
DEVICE void rotate_chunk(float x[CHUNK_VALUES], int chunk, int dim)
{
#pragma unroll
    for (int i = 0; i < CHUNK_VALUES; i++)
        x[i] = flip(x[i], is_negative(chunk * CHUNK_VALUES + i));
#pragma unroll
    for (int distance = 1; distance < CHUNK_VALUES; distance *= 2)
#pragma unroll
        for (int i = 0; i < CHUNK_VALUES; i++)
            if (!(i & distance))
                mix(x[i], x[i + distance]);
    for (int distance = 1; distance < dim / CHUNK_VALUES; distance *= 2)
#pragma unroll
        for (int i = 0; i < CHUNK_VALUES; i++)
            x[i] = mix_lanes(x[i], distance);
}

// ---- queries and results ----

// Loads a warp's queries, `count` rows from `row` on, into the tile.
template <int D>
DEVICE void load_queries(const struct cuda_attention &p, const struct prefill_block &block, uint32_t tile,
                         int tile_rows, int row, int count)
{
    constexpr int CHUNKS = D / CHUNK_VALUES;
    int chunk = lane_index() % CHUNKS, dim = p.cache.k_dim;
    uint32_t order = order_of(p.cache.k.dtype);
    for (int i = lane_index() / CHUNKS; i < count; i += WARP / CHUNKS) {
        uint4 x = make_uint4(0, 0, 0, 0);
        if (row + i < block.rows && chunk * CHUNK_VALUES < dim)
            x = __ldg((const uint4 *)(p.q + vector_of(p, block, row + i) * dim) + chunk);
        if (p.cache.k.dtype == DTYPE_INT4_TOKEN) {
            float values[CHUNK_VALUES];
            bf16_dequantise(x, values);
            rotate_chunk(values, chunk, dim);
            x = make_uint4(bf16_pair(values[0], values[1]), bf16_pair(values[2], values[3]),
                           bf16_pair(values[4], values[5]), bf16_pair(values[6], values[7]));
        }
        x = into_order(x, order);
        store_chunk(tile + chunk_at(tile_rows, row + i, chunk), x.x, x.y, x.z, x.w);
    }
}

// s H x of sixteen rows of results, in their accumulators. The order of four-bit formats makes a value's place in its
// pair bit 2 of its channel, and the lane the two bits below.
template <int D> DEVICE void rotate_back(float o[D / 8][4], int dim)
{
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        mix(o[j][0], o[j][1]);
        mix(o[j][2], o[j][3]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[j][i] = mix_lanes(mix_lanes(o[j][i], 1), 2);
    }
#pragma unroll
    for (int distance = 1; distance < D / 8; distance *= 2)
        if (distance < dim / 8)
#pragma unroll
            for (int j = 0; j < D / 8; j++)
                if (!(j & distance))
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        mix(o[j][i], o[j + distance][i]);
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[j][i] = flip(o[j][i], is_negative(j * 8 + lane_index() % 4 + i % 2 * 4));
}

// Writes sixteen rows of results from `row` on, through the tile that held their queries.
template <int D>
DEVICE void store_results(const struct cuda_attention &p, const struct prefill_block &block, uint32_t tile,
                          int tile_rows, int row, float o[D / 8][4], const float sum[2])
{
    constexpr int CHUNKS = D / CHUNK_VALUES;
    int dim = p.cache.v_dim, quad = lane_index() % 4;
    uint32_t order = order_of(p.cache.v.dtype) >> 8 * quad;
    float fold = fold_of(p.cache.v, dim), by[2] = { fold / sum[0], fold / sum[1] };
    if (p.cache.v.dtype == DTYPE_INT4_TOKEN)
        rotate_back<D>(o, dim);
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t at = tile + chunk_at(tile_rows, row + lane_index() / 4 + i / 2 * 8, j)
                + (order >> i % 2 * 4 & 7) * 2;
            asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"(bf16_round(o[j][i] * by[i / 2])) : "memory");
        }
    __syncwarp();
    int chunk = lane_index() % CHUNKS;
    for (int i = lane_index() / CHUNKS; i < 16; i += WARP / CHUNKS) {
        if (row + i >= block.rows || chunk * CHUNK_VALUES >= dim)
            continue;
        uint32_t x[4];
        shared_load<CHUNK_BYTES>(tile + chunk_at(tile_rows, row + i, chunk), x);
        *((uint4 *)(p.out + vector_of(p, block, row + i) * dim) + chunk) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

// ---- softmax ----

DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A probability is 2^(to_power * score), after the cap.
struct score_rule {
    float to_power, scale, cap; // scale: of what is capped
    int window;
};

DEVICE struct score_rule score_rule_of(const struct cuda_attention &p)
{
    float scale = p.scale * fold_of(p.cache.k, p.cache.k_dim);
    return { LOG2_E * (p.softcap > 0 ? 1 : scale), scale, p.softcap, p.window };
}

// The positions that all of some rows see.
struct seen_by_all {
    int first, last;
};

DEVICE struct seen_by_all seen_by_rows(const struct prefill_block &block, int window, int row, int count)
{
    return { window > 0 ? position_of(block, row + count - 1) - window + 1 : 0, position_of(block, row) };
}

// The running softmax of a lane's two rows; a lane sums over its own columns.
struct softmax_rows {
    int position[2];
    float maximum[2], sum[2];
};

// An attention sink counts as a score that was seen before all others.
DEVICE void softmax_begin(const struct cuda_attention &p, const struct prefill_block &block,
                          const struct score_rule &rule, int row, struct softmax_rows &rows)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int own = min(row + lane_index() / 4 + i * 8, block.rows - 1);
        rows.position[i] = position_of(block, own);
        rows.maximum[i] = -INFINITY;
        rows.sum[i] = 0;
        if (p.sinks) {
            rows.maximum[i] = p.sinks[first_head(p, block) + (block.row + own) % block.group] * LOG2_E / rule.to_power;
            rows.sum[i] = lane_index() % 4 ? 0 : 1;
        }
    }
}

// tanh by the fast exponential, with an error far below that of bfloat16 scores.
template <int N> DEVICE void cap_scores(const struct score_rule &rule, float s[N][4])
{
    float twice = 2 * LOG2_E * rule.scale / rule.cap;
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[j][i] = rule.cap - 2 * __fdividef(rule.cap, 1 + exp2_fast(s[j][i] * twice));
}

// `first` is the position of the tile's first token.
template <int N>
DEVICE void hide_unseen(const struct score_rule &rule, const struct softmax_rows &rows, int first, float s[N][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int last = rows.position[half] - first - lane_index() % 4 * 2;
        int hidden = rule.window > 0 ? last - rule.window : -1; // the last one before the window
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = j * 8 + i;
                if (column > last || column <= hidden)
                    s[j][half * 2 + i] = -INFINITY;
            }
    }
}

// Online softmax: scores become probabilities, maximum and sum are updated; the results so far must be scaled by
// `keep`.
template <int N>
DEVICE void softmax_step(const struct score_rule &rule, struct softmax_rows &rows, float s[N][4], float keep[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float maximum = rows.maximum[half];
#pragma unroll
        for (int j = 0; j < N; j++)
            maximum = fmaxf(maximum, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
        maximum = lanes_max(maximum, 4);
        float base = maximum == -INFINITY ? 0 : maximum * rule.to_power, sum = 0;
        keep[half] = exp2_fast(__fmul_rn(rows.maximum[half], rule.to_power) - base); // no fma: 1 if nothing changed
        rows.maximum[half] = maximum;
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int i = half * 2; i < half * 2 + 2; i++) {
                s[j][i] = exp2_fast(fmaf(s[j][i], rule.to_power, -base));
                sum += s[j][i];
            }
        rows.sum[half] = rows.sum[half] * keep[half] + sum;
    }
}

// From products to probabilities, for a tile whose tokens begin at `first`.
template <int N>
DEVICE void softmax_tile(const struct score_rule &rule, const struct seen_by_all &seen, struct softmax_rows &rows,
                         int first, float s[N][4], float keep[2])
{
    if (rule.cap > 0)
        cap_scores<N>(rule, s);
    if (first < seen.first || first + N * 8 - 1 > seen.last)
        hide_unseen<N>(rule, rows, first, s);
    softmax_step<N>(rule, rows, s, keep);
}

DEVICE void softmax_end(struct softmax_rows &rows)
{
    rows.sum[0] = lanes_sum(rows.sum[0], 4);
    rows.sum[1] = lanes_sum(rows.sum[1], 4);
}

// Probabilities as the A operand of products over sixteen tokens each.
template <int N> DEVICE void pack_probs(const float s[N][4], uint32_t probs[N / 2][4])
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        probs[j / 2][j % 2 * 2] = bf16_pair(s[j][0], s[j][1]);
        probs[j / 2][j % 2 * 2 + 1] = bf16_pair(s[j][2], s[j][3]);
    }
}

template <int N> DEVICE void scale_results(float o[N][4], const float keep[2])
{
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[j][i] *= keep[i / 2];
}

#endif
