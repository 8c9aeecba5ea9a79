// SPDX-License-Identifier: Apache-2.0
// kernel/x86/page.h: one side of one page for one head, and what attention asks of a cache format. Scores are computed
// in lanes of tokens and sums over V in lanes of channels, so K is turned around in registers, LANES tokens at a time.
//   (1) few queries take values from registers as they are dequantised; many share a page that is dequantised into
// memory       once. Both ways give a query the same bits
//   (2) all slots of a page are read, those without a token too; whatever they hold, the others are right
//   (3) what is left to the caller: the scale of the layer, the scale of each token where a format has one, and the
//       rotation of int4_per_token_head (kernel/ref/kv_codec.h)
#ifndef KERNEL_X86_PAGE_H
#define KERNEL_X86_PAGE_H

#include "kernel/op.h"
#include "kernel/x86/vector.h"

enum { BLOCK = 16, ROW_BLOCKS_MAX = LATENT_DIM_MAX / BLOCK }; // channels that share a scale, in formats and in queries
enum { SEGMENT = 256, SEGMENT_PAGES = SEGMENT / KV_PAGE_TOKENS }; // tokens whose scores lie side by side
enum { QUERIES_FEW = 4 };                                         // that are computed together in registers
enum { PAGES_AHEAD = 4 };                                         // that memory is asked for before their turn

struct range {
    int from, to;
};

struct page_side {
    const uint8_t *data, *scale;
    size_t data_bytes, scale_bytes; // of one token
    int dim;
};

// One side of the pages of a segment, and those that are to be read after them.
struct page_run {
    const struct page_side *page, *next;
    int count, next_count;
};

// Queries as they are multiplied with K: in floats, or for formats of integers as 16-bit ones.
struct queries {
    const float *q;           // (query, dim)
    const int16_t *q16;       // (query, dim), in the format's order of channels
    const float *block_scale; // (query, dim / BLOCK), of q16
    int dim;
};

// A page in memory: the values of K (dim, token) or V (token, dim), or pairs of 16-bit integers in their place.
struct page_tile {
    float value[KV_PAGE_TOKENS * LATENT_DIM_MAX];
    float block_scale[KV_PAGE_TOKENS * ROW_BLOCKS_MAX]; // (block, token)
    float block_scale_most[KV_PAGE_TOKENS];             // the largest of each token
};

// What to do with pages of a format. score and share: (query, SEGMENT), from the first page's first token on;
// out: (query, dim). Shares of tokens that a query does not see are 0, and `tokens` are those that it sees.
struct page_format {
    void (*score[QUERIES_FEW])(struct page_run run, struct queries queries, float *score); // of 1, 2 ... queries
    void (*mix[QUERIES_FEW])(struct page_run run, struct range tokens, const float *share, float *out);
    void (*dequantise_k)(const struct page_side *page, struct page_tile *tile);
    void (*dequantise_v)(const struct page_side *page, struct page_tile *tile);
    void (*score_tile)(const struct page_tile *tile, struct queries queries, int count, float *score);
    void (*mix_tile)(const struct page_tile *tile, int dim, struct range tokens, const float *share, int count,
                     float *out);
    void (*token_scales)(const struct page_side *page, float *out); // NULL: it has none
    float unit;                                                     // what 1 is among the values
    const int *order; // integers: which channel of K's next eight is where; NULL: K is in floats
    bool turned;      // channel 4 i + j of a block is at 4 j + i in the sums over V
};

ALWAYS_INLINE void prefetch_bytes(const uint8_t *from, size_t count)
{
    enum { LINE = 64 };
    for (size_t at = 0; at < count; at += LINE)
        _mm_prefetch((const char *)from + at, _MM_HINT_T1);
}

ALWAYS_INLINE void prefetch_page(const struct page_side *page)
{
    prefetch_bytes(page->data, KV_PAGE_TOKENS * page->data_bytes);
    prefetch_bytes(page->scale, KV_PAGE_TOKENS * page->scale_bytes);
}

// Memory answers late: when a page's turn has come, one further on is asked for. It goes to the second cache, which can
// wait for more at a time than the first.
ALWAYS_INLINE void prefetch_ahead(struct page_run run, int index)
{
    index += PAGES_AHEAD;
    if (index < run.count)
        prefetch_page(&run.page[index]);
    else if (index - run.count < run.next_count)
        prefetch_page(&run.next[index - run.count]);
}

ALWAYS_INLINE uint32_t read_u32(const uint8_t *bytes)
{
    uint32_t bits;
    memcpy(&bits, bytes, sizeof bits);
    return bits;
}

// Of LANES tokens from `token` on the four bytes at `at` among their scales.
ALWAYS_INLINE ivec read_scale_words(const struct page_side *side, int token, int at)
{
    if (side->scale_bytes == 4)
        return ivec_load(side->scale + 4 * token);
    uint32_t words[LANES];
    for (int i = 0; i < LANES; i++)
        words[i] = read_u32(side->scale + (size_t)(token + i) * side->scale_bytes + at);
    return ivec_load(words);
}

static void token_scales_f32(const struct page_side *side, float *out)
{
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES)
        vec_store(out + token, vec_from_bits(read_scale_words(side, token, 0)));
}

// LANES words of 32 bits of LANES tokens, turned around: vector i has word i of each.
ALWAYS_INLINE void lane_columns(const struct page_side *side, int token, int at_bytes, vec out[LANES])
{
    for (int i = 0; i < LANES; i++)
        out[i] = vec_from_bits(ivec_load(side->data + (size_t)(token + i) * side->data_bytes + at_bytes));
    transpose(out);
}

// Calls a function of one query and one of QUERIES_FEW until `count` are done.
#define IN_FEWS(i, count, some, one)                         \
    do {                                                     \
        int i = 0;                                           \
        for (; i + QUERIES_FEW <= (count); i += QUERIES_FEW) \
            some;                                            \
        for (; i < (count); i++)                             \
            one;                                             \
    } while (0)

// The members of struct page_format that are functions, named by format.
#define PAGE_FUNCTIONS(id)                                                                                \
    .score = { score_##id##_1, score_##id##_2, score_##id##_3, score_##id##_4 },                          \
    .mix = { mix_##id##_1, mix_##id##_2, mix_##id##_3, mix_##id##_4 }, .dequantise_k = dequantise_k_##id, \
    .dequantise_v = dequantise_v_##id

#endif
