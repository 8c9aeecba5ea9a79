// SPDX-License-Identifier: Apache-2.0
// kernel/x86/page.h: the interface between attention and the KV cache formats, for one side (K or V) of one page and
// head. Scores are computed in lanes of tokens, sums over V in lanes of channels, so K is transposed in registers,
// LANES tokens at a time.
//   (1) with few queries, values are used from registers as they are dequantised; with many, a page is dequantised
//       into memory once. Both give a query the same bits
//   (2) all slots of a page are read, including those without a token; their content does not affect the others
//   (3) left to the caller: the scale of the layer, the scale of each token if the format has one, and the rotation of
//       int4_per_token_head (kernel/ref/kv_codec.h)the scale of the layer, the scale of each token where a format has
//       one, and the rotation of int4_per_token_head (kernel/ref/kv_codec.h)
#ifndef KERNEL_X86_PAGE_H
#define KERNEL_X86_PAGE_H

#include "kernel/op.h"
#include "kernel/x86/vector.h"

enum { BLOCK = 16, ROW_BLOCKS_MAX = LATENT_DIM_MAX / BLOCK }; // channels that share a scale, in formats and in queries
enum { SEGMENT = 256, SEGMENT_PAGES = SEGMENT / KV_PAGE_TOKENS }; // tokens per segment (KV split)
enum { QUERIES_SKINNY = 4 };                                      // queries processed together in registers
enum { PAGES_AHEAD = 4 };                                         // prefetch distance

struct range {
    int from, to;
};

struct page_side {
    const uint8_t *data, *scale;
    size_t data_bytes, scale_bytes; // of one token
    int dim;
};

// One side of a segment's pages, and the pages to prefetch after them.
struct page_run {
    const struct page_side *page, *next;
    int count, next_count;
};

// Queries as f32, or quantised to 16 bits for integer formats.
struct queries {
    const float *q;           // (query, dim)
    const int16_t *q16;       // (query, dim), in the format's order of channels
    const float *block_scale; // (query, dim / BLOCK), of q16
    int dim;
};

// A dequantised page: values of K (dim, token) or V (token, dim), or pairs of 16-bit integers instead.
struct page_tile {
    float value[KV_PAGE_TOKENS * LATENT_DIM_MAX];
    float block_scale[KV_PAGE_TOKENS * ROW_BLOCKS_MAX]; // (block, token)
    float block_scale_most[KV_PAGE_TOKENS];             // the largest of each token
};

// The operations of a cache format. score and prob are (query, SEGMENT), from the first page's first token on; out is
// (query, dim). `tokens` are those that the query sees; the probs of others are 0.
struct page_format {
    void (*score[QUERIES_SKINNY])(struct page_run run, struct queries queries, float *score); // of 1, 2 ... queries
    void (*mix[QUERIES_SKINNY])(struct page_run run, struct range tokens, const float *prob, float *out);
    void (*dequantise_k)(const struct page_side *page, struct page_tile *tile);
    void (*dequantise_v)(const struct page_side *page, struct page_tile *tile);
    void (*score_tile)(const struct page_tile *tile, struct queries queries, int count, float *score);
    void (*mix_tile)(const struct page_tile *tile, int dim, struct range tokens, const float *prob, int count,
                     float *out);
    void (*token_scales)(const struct page_side *page, float *out); // NULL if the format has none
    float unit;                                                     // the value that stands for 1
    const int *order; // integer formats: the order of each eight channels of K; NULL: K is f32
    bool transposed;  // sums over V have channel 4 i + j of a block at 4 j + i
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

// Prefetches the page PAGES_AHEAD further on, into L2, which allows more outstanding misses than L1.
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

// The four scale bytes at `at` of LANES tokens from `token` on.
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

// Loads and transposes LANES 32-bit words of LANES tokens: vector i has word i of each token.
ALWAYS_INLINE void lane_columns(const struct page_side *side, int token, int at_bytes, vec out[LANES])
{
    for (int i = 0; i < LANES; i++)
        out[i] = vec_from_bits(ivec_load(side->data + (size_t)(token + i) * side->data_bytes + at_bytes));
    transpose(out);
}

// Processes `count` queries in batches of QUERIES_SKINNY, then one by one.
#define FOR_QUERIES(i, count, some, one)                           \
    do {                                                           \
        int i = 0;                                                 \
        for (; i + QUERIES_SKINNY <= (count); i += QUERIES_SKINNY) \
            some;                                                  \
        for (; i < (count); i++)                                   \
            one;                                                   \
    } while (0)

// Initialises the functions of struct page_format by the format's name.
#define PAGE_FUNCTIONS(id)                                                                                \
    .score = { score_##id##_1, score_##id##_2, score_##id##_3, score_##id##_4 },                          \
    .mix = { mix_##id##_1, mix_##id##_2, mix_##id##_3, mix_##id##_4 }, .dequantise_k = dequantise_k_##id, \
    .dequantise_v = dequantise_v_##id

#endif
