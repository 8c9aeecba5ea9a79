// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_sink.cuh: the sink pages of decode attention: a sequence's first pages, which are kept in
// bfloat16. The warp that has a sequence's first split adds them before it begins, straight from global memory: they
// are few, and the copies of its ring are in flight meanwhile. Lanes have the tokens and channels of
// attention_step.cuh; sums over V are scaled to the unit of the rest of the cache.
#ifndef KERNEL_CUDA_ATTENTION_SINK_CUH
#define KERNEL_CUDA_ATTENTION_SINK_CUH

#include "kernel/cuda/attention_result.cuh"

// K or V of one page for one KV head.
struct sink_side {
    const uint8_t *data;
    uint32_t data_bytes;
};

DEVICE struct sink_side sink_side_of(const struct cuda_attention &p, const struct cuda_side &side, int32_t page,
                                     int head)
{
    return { p.sink.pool + (uint64_t)(uint32_t)page * p.sink.page_bytes + side.data
                 + (uint32_t)head * PAGE_TOKENS * side.data_bytes,
             side.data_bytes };
}

// WORDS words of a token from word `at` on; zeros if no row sees the token.
template <int WORDS>
DEVICE void sink_words(const struct sink_side &side, int token, int at, bool seen, uint32_t out[WORDS])
{
    const uint4 *from = (const uint4 *)(side.data + token * side.data_bytes) + at / 4;
#pragma unroll
    for (int i = 0; i < WORDS / 4; i++) {
        uint4 x = seen ? from[i] : make_uint4(0, 0, 0, 0);
        out[4 * i] = x.x, out[4 * i + 1] = x.y, out[4 * i + 2] = x.z, out[4 * i + 3] = x.w;
    }
}

// score[0..1]: token g, score[2..3]: token g + 8, of columns 2t and 2t + 1.
template <int D>
DEVICE void sink_scores(const uint32_t low[D / 8], const uint32_t high[D / 8], const uint32_t query[D / 8],
                        float score[4])
{
    score[0] = score[1] = score[2] = score[3] = 0;
#pragma unroll
    for (int i = 0; i < D / 8; i += 2)
        multiply<true>(score, low[i], high[i], low[i + 1], high[i + 1], query[i], query[i + 1]);
}

// Raises the maxima of columns that have a score above theirs; lanes of other splits have a maximum above all scores.
template <int D> DEVICE void sink_renew(const float score[4], struct running<D> *state)
{
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float best = fmaxf(score[c], score[c + 2]);
#pragma unroll
        for (int step = 4; step < WARP; step *= 2)
            best = fmaxf(best, __shfl_xor_sync(WARP_ALL, best, step));
        float top = fmaxf(floorf(best), state->maximum[c]), keep = weight_of(state->maximum[c], top);
        state->maximum[c] = top;
        state->sum[c] *= keep;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            state->out[i][c] *= keep;
            state->out[i][c + 2] *= keep;
        }
    }
}

template <int D> DEVICE void sink_sum(const uint32_t words[4][D / 16], const uint32_t prob[2], struct running<D> *state)
{
#pragma unroll
    for (int u = 0; u < D / 64; u++) {
        uint32_t a[UNIT], b[UNIT];
        dequantise_v<FORM_BF16>(words[0] + 4 * u, words[1] + 4 * u, unit_scale(), a);
        dequantise_v<FORM_BF16>(words[2] + 4 * u, words[3] + 4 * u, unit_scale(), b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply<true>(state->out[4 * u + i], a[i], a[i + 4], b[i], b[i + 4], prob[0], prob[1]);
    }
}

// One page. `from`: the first token that any row sees.
template <int D>
DEVICE void sink_page(const struct cuda_attention &p, const struct work_tile &tile, int32_t page, int base, int from,
                      const uint32_t query[D / 8], struct running<D> *state)
{
    const struct sink_side k = sink_side_of(p, p.sink.k, page, tile.head);
    const struct sink_side v = sink_side_of(p, p.sink.v, page, tile.head);
    int g = lane_index() / 4, t = lane_index() % 4;
    auto seen = [&](int token) { return base + token >= from && base + token <= tile.last; };
    uint32_t low[D / 8], high[D / 8], words[4][D / 16];
    sink_words<D / 8>(k, g, t * (D / 8), seen(g), low);
    sink_words<D / 8>(k, g + 8, t * (D / 8), seen(g + 8), high);
    float score[4], unit = 1 / unit_of(p.cache.v, D);
    sink_scores<D>(low, high, query, score);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        score[i] *= p.scale * LOG2_E;
        score[i] = p.softcap > 0 ? cap(score[i], p.softcap * LOG2_E) : score[i];
        int row = column_of(p, tile, 2 * t + i % 2).row, position = tile.last - tile.rows + 1 + row;
        int token = base + g + i / 2 * 8;
        if (token < first_seen(p, position) || token > position || row >= tile.rows)
            score[i] = -INFINITY;
    }
    sink_renew<D>(score, state);
#pragma unroll
    for (int i = 0; i < 4; i++)
        sink_words<D / 16>(v, 2 * t + i % 2 + i / 2 * 8, g * (D / 16), seen(2 * t + i % 2 + i / 2 * 8), words[i]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        score[i] = power_of_two(score[i] - state->maximum[i % 2]);
        state->sum[i % 2] += score[i];
    }
    uint32_t prob[2] = { transpose(bf16_pair(score[0] * unit, score[1] * unit)),
                         transpose(bf16_pair(score[2] * unit, score[3] * unit)) };
    sink_sum<D>(words, prob, state);
}

DEVICE const int32_t *sink_table(const struct cuda_attention &p, const struct work_tile &tile)
{
    return p.batch.tables + p.batch.table_at[p.sink.class_index * p.batch.sequences_max + tile.sequence];
}

// Prefetches the first sink page of a tile to L2, long before it is read.
DEVICE void sink_prefetch(const struct cuda_attention &p, const struct work_tile &tile)
{
    enum { LINE = 128 };
    int page = first_seen(p, tile.last - tile.rows + 1) / PAGE_TOKENS;
    int32_t number = sink_table(p, tile)[page];
    const struct sink_side k = sink_side_of(p, p.sink.k, number, tile.head);
    const struct sink_side v = sink_side_of(p, p.sink.v, number, tile.head);
    for (uint32_t at = (uint32_t)lane_index() * LINE; at < PAGE_TOKENS * k.data_bytes; at += WARP * LINE) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(k.data + at));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(v.data + at));
    }
}

// Adds the sink pages of a tile's sequence. query: as it is in memory.
template <int D>
DEVICE void attend_sink(const struct cuda_attention &p, const struct work_tile &tile, const uint32_t query[D / 8],
                        struct running<D> *state)
{
    int from = first_seen(p, tile.last - tile.rows + 1), end = min(p.sink_pages, tile.last / PAGE_TOKENS + 1);
    const int32_t *table = sink_table(p, tile);
#pragma unroll 1
    for (int page = from / PAGE_TOKENS; page < end; page++)
        sink_page<D>(p, tile, table[page], page * PAGE_TOKENS, from, query, state);
}

#endif
