// SPDX-License-Identifier: Apache-2.0
// kernel/x86/page_integers.h: attention over integer cache formats (int8, int4, nvfp4). Queries, and the probabilities
// of a page's tokens, are quantised to 16-bit integers (error about 1e-5 of the largest of a block); integer dot
// products with codes are exact, two at a time, and scaled once.
//   (1) integer sums are exact, so only the order of blocks and pages affects rounding
//   (2) no sum overflows: a block has 16 channels, a page 16 tokens, and the largest integers here are 12 and 15, both
//       times 256, and 127
#ifndef KERNEL_X86_PAGE_INTEGERS_H
#define KERNEL_X86_PAGE_INTEGERS_H

#include "kernel/x86/page.h"

enum { BLOCK_PAIRS = BLOCK / 2, PAGE_PAIRS = KV_PAGE_TOKENS / 2, BLOCK_VECTORS = BLOCK / LANES };
enum { INTEGER_MOST = 32767 };
static const float integer_least = 0x1p-100f; // smaller magnitudes are taken as 0, so that the inverse is finite

enum integers { INTEGERS_INT8, INTEGERS_INT4, INTEGERS_NVFP4 };

// Codes of nibbles, in every byte.
ALWAYS_INLINE ivec double_e2m1(ivec codes)
{
    return ivec_look_up8(codes, _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
}

// The E4M3 in byte `index` of each lane, which has no sign.
ALWAYS_INLINE vec scale_in_word(ivec words, int index)
{
    ivec code = ivec_and(ivec_right(words, (unsigned)(8 * index)), ivec_set(0x7F));
    vec normal = vec_from_bits(ivec_add(ivec_left(code, 20), ivec_set(120 << 23)));
    vec subnormal = vec_fma(normal, vec_set(2), vec_set(-0x1p-6f)); // 1 + m/8 was read for m/8
    return vec_from_bits(ivec_if_less(code, ivec_set(8), vec_bits(subnormal), vec_bits(normal)));
}

// A block's scales, in lanes of tokens.
ALWAYS_INLINE vec block_scales(const struct page_side *side, int token, int block)
{
    uint32_t words[LANES];
    for (int i = 0; i < LANES; i++)
        words[i] = side->scale[(size_t)(token + i) * side->scale_bytes + (size_t)block];
    return scale_in_word(ivec_load(words), 0);
}

static void token_scales_int4(const struct page_side *side, float *out) // the low bits are the zero point
{
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES)
        vec_store(out + token, vec_from_bits(ivec_and(read_scale_words(side, token, 0), ivec_set(~15))));
}

// ---- K ----

// The order of eight channels in K's pairs.
static const int nibble_order[8] = { 0, 4, 2, 6, 1, 5, 3, 7 };
static const int byte_order[8] = { 0, 2, 1, 3, 4, 6, 5, 7 };

// Splits byte codes into even and odd ones, each in the high byte of 16 bits (times 256).
ALWAYS_INLINE void pair_bytes(ivec codes, ivec out[2])
{
    out[0] = ivec_left16(codes, 8);
    out[1] = ivec_and(codes, ivec_set((int32_t)0xFF00FF00));
}

// A block of channels, from two words of nibbles or four of bytes. int4 has the zero point in every byte of `zero`.
ALWAYS_INLINE void block_pairs(enum integers kind, const ivec *words, ivec zero, ivec out[BLOCK_PAIRS])
{
    const ivec nibble = ivec_set(0x0F0F0F0F);
    for (int i = 0; i < 4 && kind == INTEGERS_INT8; i++) {
        out[2 * i] = ivec_right16(ivec_left16(words[i], 8), 8);
        out[2 * i + 1] = ivec_right16(words[i], 8);
    }
    for (int i = 0; i < 2 && kind != INTEGERS_INT8; i++) {
        ivec low = ivec_and(words[i], nibble), high = ivec_and(ivec_right(words[i], 4), nibble);
        pair_bytes(kind == INTEGERS_NVFP4 ? double_e2m1(low) : ivec_sub8(low, zero), out + 4 * i);
        pair_bytes(kind == INTEGERS_NVFP4 ? double_e2m1(high) : ivec_sub8(high, zero), out + 4 * i + 2);
    }
}

#if defined(__AVX512F__)
// Transposes eight words of each token: a vector holds those of two tokens, 0 and 4, ... 3 and 7, 8 and 12, ... 11 and
// 15.
ALWAYS_INLINE void eight_columns(const struct page_side *side, int token, int at_bytes, ivec out[8])
{
    ivec part[8];
    const uint8_t *data = side->data + (size_t)token * side->data_bytes + at_bytes;
    for (int i = 0; i < 8; i++) {
        const uint8_t *low = data + (size_t)(i % 4 + i / 4 * 8) * side->data_bytes, *high = low + 4 * side->data_bytes;
        out[i] = _mm512_inserti64x4(_mm512_castsi256_si512(half_load(low)), half_load(high), 1);
    }
    for (int i = 0; i < 8; i += 4) {
        ivec a = _mm512_unpacklo_epi32(out[i], out[i + 1]), b = _mm512_unpackhi_epi32(out[i], out[i + 1]);
        ivec c = _mm512_unpacklo_epi32(out[i + 2], out[i + 3]), d = _mm512_unpackhi_epi32(out[i + 2], out[i + 3]);
        part[i] = _mm512_unpacklo_epi64(a, c);
        part[i + 1] = _mm512_unpackhi_epi64(a, c);
        part[i + 2] = _mm512_unpacklo_epi64(b, d);
        part[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        out[i] = _mm512_shuffle_i64x2(part[i], part[i + 4], 0x88);
        out[i + 4] = _mm512_shuffle_i64x2(part[i], part[i + 4], 0xDD);
    }
}
#endif

// Loads and transposes `count` 32-bit words of LANES tokens.
ALWAYS_INLINE void word_columns(const struct page_side *side, int token, int at_bytes, int count, ivec *out)
{
#if defined(__AVX512F__)
    if (count == 8) {
        eight_columns(side, token, at_bytes, out);
        return;
    }
#endif
    if (count == LANES) {
        vec columns[LANES];
        lane_columns(side, token, at_bytes, columns);
        for (int i = 0; i < LANES; i++)
            out[i] = vec_bits(columns[i]);
        return;
    }
    for (int i = 0; i < count; i++) {
        uint32_t words[LANES];
        for (int j = 0; j < LANES; j++)
            words[j] = read_u32(side->data + (size_t)(token + j) * side->data_bytes + at_bytes + 4 * i);
        out[i] = ivec_load(words);
    }
}

// The consumer of K's blocks: they are stored to `tile`, or multiplied by q and added to the sums of `count` queries (a
// constant after inlining).
struct block_use {
    struct page_tile *tile;
    struct queries queries;
    int count;
    float *score;
    vec sum[QUERIES_SKINNY];
};

ALWAYS_INLINE void use_block(struct block_use *use, enum integers kind, int token, int block,
                             const ivec pairs[BLOCK_PAIRS], vec scale)
{
    const struct queries *queries = &use->queries;
    if (use->tile) {
        for (int i = 0; i < BLOCK_PAIRS; i++)
            vec_store(use->tile->value + (block * BLOCK_PAIRS + i) * KV_PAGE_TOKENS + token, vec_from_bits(pairs[i]));
        vec_store(use->tile->block_scale + block * KV_PAGE_TOKENS + token, scale);
    }
    for (int i = 0; i < use->count; i++) {
        const int16_t *q = queries->q16 + i * queries->dim + block * BLOCK;
        ivec sum = ivec_set(0);
        for (int j = 0; j < BLOCK_PAIRS; j++)
            sum = ivec_dot16(sum, pairs[j], ivec_set((int32_t)read_u32((const uint8_t *)(q + 2 * j))));
        vec product = vec_from_int(sum) * vec_set(queries->block_scale[i * (queries->dim / BLOCK) + block]);
        use->sum[i] = kind == INTEGERS_NVFP4 ? vec_fma(product, scale, use->sum[i]) : vec_add(use->sum[i], product);
    }
}

// Processes `words` words of each token as blocks; `words` is a constant after inlining.
ALWAYS_INLINE void use_words(const struct page_side *side, enum integers kind, int token, int at_bytes, int words,
                             struct block_use *use)
{
    enum { WORDS_MAX = 16 };
    ivec columns[WORDS_MAX], pairs[BLOCK_PAIRS], zero = ivec_set(0), scales = ivec_set(0);
    int block_words = kind == INTEGERS_INT8 ? 4 : 2, blocks = words / block_words;
    int first = at_bytes / (4 * block_words);
    word_columns(side, token, at_bytes, words, columns);
    if (kind == INTEGERS_INT4) {
        zero = ivec_and(read_scale_words(side, token, 0), ivec_set(15));
        zero = ivec_or(zero, ivec_left(zero, 16));
        zero = ivec_or(zero, ivec_left(zero, 8));
    }
    if (kind == INTEGERS_NVFP4 && blocks > 1)
        scales = read_scale_words(side, token, first);
#define USE_BLOCK(i)                                                           \
    if (i < blocks) {                                                          \
        block_pairs(kind, columns + i * block_words, zero, pairs);             \
        vec scale = kind != INTEGERS_NVFP4 ? vec_set(1)                        \
            : blocks > 1                   ? scale_in_word(scales, i)          \
                                           : block_scales(side, token, first); \
        use_block(use, kind, token, first + i, pairs, scale);                  \
    }
    USE_BLOCK(0) USE_BLOCK(1) USE_BLOCK(2) USE_BLOCK(3) // written out, so that words stay in registers
#undef USE_BLOCK
}

// Four blocks at a time while there are as many (with bytes and 8 lanes two), then one.
ALWAYS_INLINE void walk_blocks(const struct page_side *side, enum integers kind, struct block_use *use)
{
    int one = kind == INTEGERS_INT8 ? 4 : 2, some = kind == INTEGERS_INT8 ? LANES : 8;
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
        int at = 0, end = (int)side->data_bytes;
        for (int i = 0; i < use->count; i++)
            use->sum[i] = vec_set(0);
        for (; at + 4 * some <= end; at += 4 * some)
            use_words(side, kind, token, at, some, use);
        for (; at < end; at += 4 * one)
            use_words(side, kind, token, at, one, use);
        for (int i = 0; i < use->count; i++)
            vec_store(use->score + i * SEGMENT + token, use->sum[i]);
    }
}

ALWAYS_INLINE void score_integer_tile(const struct page_tile *tile, enum integers kind, struct queries queries,
                                      int first, int count, float *score)
{
    queries.q16 += first * queries.dim;
    queries.block_scale += first * (queries.dim / BLOCK);
    struct block_use use = { .queries = queries, .count = count };
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
        for (int i = 0; i < count; i++)
            use.sum[i] = vec_set(0);
        for (int block = 0; block < queries.dim / BLOCK; block++) {
            ivec pairs[BLOCK_PAIRS];
            for (int i = 0; i < BLOCK_PAIRS; i++)
                pairs[i] = vec_bits(vec_load(tile->value + (block * BLOCK_PAIRS + i) * KV_PAGE_TOKENS + token));
            use_block(&use, kind, token, block, pairs, vec_load(tile->block_scale + block * KV_PAGE_TOKENS + token));
        }
        for (int i = 0; i < count; i++)
            vec_store(score + (first + i) * SEGMENT + token, use.sum[i]);
    }
}

// ---- V ----

// The quantised probabilities of a page's tokens for one query, as pairs of 16-bit integers: one row per block for
// nvfp4, otherwise the first row.
struct weights {
    uint32_t pair[ROW_BLOCKS_MAX][PAGE_PAIRS];
    float unit;
};

// The scales of V's blocks, (block, token), and the largest of each token.
ALWAYS_INLINE void read_block_scales(const struct page_side *side, float *out, float *most)
{
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
        int block = 0, blocks = side->dim / BLOCK;
        vec largest = vec_set(0);
        for (; block + 4 <= blocks; block += 4) {
            ivec words = read_scale_words(side, token, block);
            for (int i = 0; i < 4; i++) {
                vec scale = scale_in_word(words, i);
                largest = vec_max(largest, scale);
                vec_store(out + (block + i) * KV_PAGE_TOKENS + token, scale);
            }
        }
        for (; block < blocks; block++) {
            vec scale = block_scales(side, token, block);
            largest = vec_max(largest, scale);
            vec_store(out + block * KV_PAGE_TOKENS + token, scale);
        }
        vec_store(most + token, largest);
    }
}

// Quantises the probabilities of a page's tokens, times the block scales, (block, token), if there are any; `most` is
// each token's largest scale. Tokens that the query does not see have 0, or NaN, since an unused slot's scale may be
// anything: the maximum ignores NaN, and it converts to an integer whose low half is 0.
ALWAYS_INLINE void round_probs(const float *prob, const float *scales, const float *most, int blocks,
                               struct weights *out)
{
    vec x[KV_PAGE_TOKENS / LANES], largest = vec_set(0);
    for (int i = 0; i < KV_PAGE_TOKENS / LANES; i++) {
        x[i] = vec_load(prob + i * LANES);
        largest = vec_max(scales ? vec_mul(x[i], vec_load(most + i * LANES)) : x[i], largest);
    }
    float limit = vec_largest(largest), inverse = limit < integer_least ? 0 : INTEGER_MOST / limit;
    out->unit = limit < integer_least ? 0 : limit * (1.0f / INTEGER_MOST);
    for (int i = 0; i < KV_PAGE_TOKENS / LANES; i++) {
        vec scaled = x[i] * vec_set(inverse);
        for (int block = 0; block < blocks; block++) {
            int at = block * KV_PAGE_TOKENS + i * LANES;
            ivec rounded = vec_to_int(scales ? vec_mul(scaled, vec_load(scales + at)) : scaled);
            half_store(&out->pair[block][i * LANES / 2], ivec_to_u16(rounded));
        }
    }
}

// Blocks of channels of two tokens side by side: a pair of integers in each lane. Nibbles lie in the high byte of each
// 16 bits, channel 4 i + j of a block in its lane 4 j + i.
enum { MIX_BLOCKS = LANES == 16 ? 2 : 1, PAIR_VECTORS = MIX_BLOCKS * BLOCK_VECTORS }; // blocks per iteration

#if defined(__AVX512F__)
ALWAYS_INLINE ivec nibble_places(ivec words)
{
    const ivec places = _mm512_setr_epi32(8, 8, 8, 8, 4, 4, 4, 4, 0, 0, 0, 0, 28, 28, 28, 28);
    return ivec_and(_mm512_rolv_epi32(words, places), ivec_set(0x0F000F00));
}

// The four words of 16 bits of `a` at the places 4 i and of `b` at 4 i + 8, side by side, four times.
ALWAYS_INLINE ivec nibble_words(int i)
{
    int a = i * 4, b = a + 8;
    const __m128i once = _mm_setr_epi16((short)a, (short)b, (short)(a + 1), (short)(b + 1), (short)(a + 2),
                                        (short)(b + 2), (short)(a + 3), (short)(b + 3));
    return _mm512_broadcast_i32x4(once);
}

ALWAYS_INLINE void nibble_lanes(const uint8_t *a, const uint8_t *b, int blocks, ivec out[PAIR_VECTORS])
{
    if (blocks == 1) {
        out[0] = nibble_places(_mm512_unpacklo_epi16(ivec_set64(a), ivec_set64(b)));
        return;
    }
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)a)),
                                           _mm_loadu_si128((const void *)b), 1);
    for (int i = 0; i < MIX_BLOCKS; i++)
        out[i] = nibble_places(_mm512_permutexvar_epi16(nibble_words(i), _mm512_castsi256_si512(both)));
}

ALWAYS_INLINE void byte_lanes(const uint8_t *a, const uint8_t *b, int blocks, ivec out[PAIR_VECTORS])
{
    for (int i = 0; i < blocks; i++)
        out[i] = _mm512_mask_blend_epi16(0xAAAAAAAA, ivec_from_i8(a + BLOCK * i),
                                         ivec_left(ivec_from_i8(b + BLOCK * i), 16));
}
#else
ALWAYS_INLINE void nibble_lanes(const uint8_t *a, const uint8_t *b, int blocks, ivec out[PAIR_VECTORS])
{
    ivec words = _mm256_unpacklo_epi16(ivec_set64(a), ivec_set64(b)), nibble = ivec_set(0x0F000F00);
    (void)blocks; // one
    out[0] = ivec_and(_mm256_sllv_epi32(words, _mm256_setr_epi32(8, 8, 8, 8, 4, 4, 4, 4)), nibble);
    out[1] = ivec_and(_mm256_srlv_epi32(words, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), nibble);
}

ALWAYS_INLINE void byte_lanes(const uint8_t *a, const uint8_t *b, int blocks, ivec out[PAIR_VECTORS])
{
    (void)blocks;
    for (int i = 0; i < BLOCK_VECTORS; i++)
        out[i] = _mm256_blend_epi16(ivec_from_i8(a + LANES * i), ivec_left(ivec_from_i8(b + LANES * i), 16), 0xAA);
}
#endif

ALWAYS_INLINE void value_pairs(const struct page_side *side, enum integers kind, int pair, int block, int blocks,
                               ivec out[PAIR_VECTORS])
{
    const uint8_t *a = side->data + (size_t)(2 * pair) * side->data_bytes, *b = a + side->data_bytes;
    if (kind == INTEGERS_INT8) {
        byte_lanes(a + block * BLOCK, b + block * BLOCK, blocks, out);
        return;
    }
    nibble_lanes(a + block * BLOCK / 2, b + block * BLOCK / 2, blocks, out);
    uint32_t zero = 0;
    if (kind == INTEGERS_INT4) {
        const uint8_t *scale = side->scale + (size_t)(2 * pair) * side->scale_bytes;
        zero = (read_u32(scale) & 15) << 8 | (read_u32(scale + side->scale_bytes) & 15) << 24;
    }
    for (int i = 0; i < blocks * BLOCK_VECTORS; i++)
        out[i] = kind == INTEGERS_NVFP4 ? double_e2m1(out[i]) : ivec_sub16(out[i], ivec_set((int32_t)zero));
}

// Sums of `count` queries in `blocks` blocks of channels; both are constants where this is inlined.
typedef vec block_sums[QUERIES_SKINNY][PAIR_VECTORS];

ALWAYS_INLINE void load_sums(block_sums sum, const float *out, int dim, int block, int blocks, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < blocks * BLOCK_VECTORS; j++)
            sum[i][j] = vec_load(out + i * dim + block * BLOCK + j * LANES);
}

ALWAYS_INLINE void store_sums(block_sums sum, float *out, int dim, int block, int blocks, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < blocks * BLOCK_VECTORS; j++)
            vec_store(out + i * dim + block * BLOCK + j * LANES, sum[i][j]);
}

// Adds a page, which is `page`, or `tile` (pair, dim) where that is given.
ALWAYS_INLINE void add_page(block_sums out, const struct page_side *page, const float *tile, int dim,
                            enum integers kind, int block, int blocks, const struct weights *weights, int count)
{
    ivec sum[QUERIES_SKINNY][PAIR_VECTORS];
    int vectors = blocks * BLOCK_VECTORS;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = ivec_set(0);
    for (int pair = 0; pair < PAGE_PAIRS; pair++) {
        ivec value[PAIR_VECTORS];
        for (int j = 0; j < vectors && tile; j++)
            value[j] = vec_bits(vec_load(tile + pair * dim + block * BLOCK + j * LANES));
        if (!tile)
            value_pairs(page, kind, pair, block, blocks, value);
        for (int i = 0; i < count; i++)
            for (int j = 0; j < vectors; j++) {
                int row = kind == INTEGERS_NVFP4 ? block + j / BLOCK_VECTORS : 0;
                sum[i][j] = ivec_dot16(sum[i][j], value[j], ivec_set((int32_t)weights[i].pair[row][pair]));
            }
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < vectors; j++)
            out[i][j] = vec_fma(vec_from_int(sum[i][j]), vec_set(weights[i].unit), out[i][j]);
}

ALWAYS_INLINE void add_run(struct page_run run, enum integers kind, int block, int blocks,
                           const struct weights (*weights)[QUERIES_SKINNY], int count, float *out)
{
    block_sums sum;
    int dim = run.page[0].dim;
    load_sums(sum, out, dim, block, blocks, count);
    for (int page = 0; page < run.count; page++) {
        if (block == 0)
            prefetch_ahead(run, page);
        add_page(sum, &run.page[page], NULL, dim, kind, block, blocks, weights[page], count);
    }
    store_sums(sum, out, dim, block, blocks, count);
}

ALWAYS_INLINE void prefetch_scales(struct page_run run, int index)
{
    if (index < run.count)
        prefetch_bytes(run.page[index].scale, KV_PAGE_TOKENS * run.page[index].scale_bytes);
}

// Computes the weights of all pages first, as these are independent of each other; so scales are needed, and
// prefetched, long before the values.
ALWAYS_INLINE void mix_run_integers(struct page_run run, enum integers kind, const float *prob, int count, float *out)
{
    struct weights weights[SEGMENT_PAGES][QUERIES_SKINNY];
    int blocks = run.page[0].dim / BLOCK, block = 0;
    bool scaled = kind == INTEGERS_NVFP4;
    for (int page = 0; page < run.count; page++) {
        float scales[ROW_BLOCKS_MAX * KV_PAGE_TOKENS], most[KV_PAGE_TOKENS];
        if (scaled) {
            prefetch_scales(run, page + PAGES_AHEAD);
            read_block_scales(&run.page[page], scales, most);
        }
        for (int i = 0; i < count; i++)
            round_probs(prob + i * SEGMENT + page * KV_PAGE_TOKENS, scaled ? scales : NULL, most, scaled ? blocks : 1,
                        &weights[page][i]);
    }
    for (; block + MIX_BLOCKS <= blocks; block += MIX_BLOCKS)
        add_run(run, kind, block, MIX_BLOCKS, weights, count, out);
    for (; block < blocks; block++)
        add_run(run, kind, block, 1, weights, count, out);
}

ALWAYS_INLINE void add_tile(const struct page_tile *tile, enum integers kind, int dim, int block, int blocks,
                            const struct weights *weights, int count, float *out)
{
    block_sums sum;
    load_sums(sum, out, dim, block, blocks, count);
    add_page(sum, NULL, tile->value, dim, kind, block, blocks, weights, count);
    store_sums(sum, out, dim, block, blocks, count);
}

ALWAYS_INLINE void mix_integer_tile(const struct page_tile *tile, enum integers kind, int dim, const float *prob,
                                    int count, float *out)
{
    struct weights weights[QUERIES_SKINNY];
    int blocks = dim / BLOCK, block = 0;
    bool scaled = kind == INTEGERS_NVFP4;
    for (int i = 0; i < count; i++)
        round_probs(prob + i * SEGMENT, scaled ? tile->block_scale : NULL, tile->block_scale_most, scaled ? blocks : 1,
                    &weights[i]);
    for (; block + MIX_BLOCKS <= blocks; block += MIX_BLOCKS)
        add_tile(tile, kind, dim, block, MIX_BLOCKS, weights, count, out);
    for (; block < blocks; block++)
        add_tile(tile, kind, dim, block, 1, weights, count, out);
}

ALWAYS_INLINE void dequantise_pairs(const struct page_side *side, enum integers kind, struct page_tile *tile)
{
    if (kind == INTEGERS_NVFP4)
        read_block_scales(side, tile->block_scale, tile->block_scale_most);
    for (int pair = 0; pair < PAGE_PAIRS; pair++)
        for (int block = 0; block < side->dim / BLOCK; block++) {
            ivec value[PAIR_VECTORS];
            value_pairs(side, kind, pair, block, 1, value);
            for (int j = 0; j < BLOCK_VECTORS; j++)
                vec_store(tile->value + pair * side->dim + block * BLOCK + j * LANES, vec_from_bits(value[j]));
        }
}

// ---- formats ----

#define INTEGER_FUNCTIONS_OF(id, kind, number)                                                               \
    static void score_##id##_##number(struct page_run run, struct queries queries, float *score)             \
    {                                                                                                        \
        for (int i = 0; i < run.count; i++, score += KV_PAGE_TOKENS) {                                       \
            struct block_use use = { .queries = queries, .count = number, .score = score };                  \
            prefetch_ahead(run, i);                                                                          \
            walk_blocks(&run.page[i], kind, &use);                                                           \
        }                                                                                                    \
    }                                                                                                        \
    static void mix_##id##_##number(struct page_run run, struct range tokens, const float *prob, float *out) \
    {                                                                                                        \
        (void)tokens; /* other probs are 0 */                                                                \
        mix_run_integers(run, kind, prob, number, out);                                                      \
    }
#define INTEGER_FUNCTIONS(id, kind)                                                                                 \
    INTEGER_FUNCTIONS_OF(id, kind, 1)                                                                               \
    INTEGER_FUNCTIONS_OF(id, kind, 2)                                                                               \
    INTEGER_FUNCTIONS_OF(id, kind, 3)                                                                               \
    INTEGER_FUNCTIONS_OF(id, kind, 4)                                                                               \
    static void dequantise_k_##id(const struct page_side *side, struct page_tile *tile)                             \
    {                                                                                                               \
        walk_blocks(side, kind, &(struct block_use){ .tile = tile });                                               \
    }                                                                                                               \
    static void dequantise_v_##id(const struct page_side *side, struct page_tile *tile)                             \
    {                                                                                                               \
        dequantise_pairs(side, kind, tile);                                                                         \
    }                                                                                                               \
    static void score_tile_##id(const struct page_tile *tile, struct queries queries, int count, float *score)      \
    {                                                                                                               \
        FOR_QUERIES(i, count, score_integer_tile(tile, kind, queries, i, QUERIES_SKINNY, score),                    \
                    score_integer_tile(tile, kind, queries, i, 1, score));                                          \
    }                                                                                                               \
    static void mix_tile_##id(const struct page_tile *tile, int dim, struct range tokens, const float *prob,        \
                              int count, float *out)                                                                \
    {                                                                                                               \
        (void)tokens;                                                                                               \
        FOR_QUERIES(i, count, mix_integer_tile(tile, kind, dim, prob + i * SEGMENT, QUERIES_SKINNY, out + i * dim), \
                    mix_integer_tile(tile, kind, dim, prob + i * SEGMENT, 1, out + i * dim));                       \
    }
INTEGER_FUNCTIONS(int8, INTEGERS_INT8)
INTEGER_FUNCTIONS(int4, INTEGERS_INT4)
INTEGER_FUNCTIONS(nvfp4, INTEGERS_NVFP4)

#define INTEGER_FORMAT(id, ...) \
    { PAGE_FUNCTIONS(id), .score_tile = score_tile_##id, .mix_tile = mix_tile_##id, __VA_ARGS__ }

#endif
