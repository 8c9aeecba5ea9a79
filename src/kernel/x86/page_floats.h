// SPDX-License-Identifier: Apache-2.0
// kernel/x86/page_floats.h: attention over float cache formats (f32, f16, bf16, fp8). Values are widened to f32, which
// is exact.
//   (1) a score is the sum over the even channels plus the sum over the odd ones: two FMA chains hide latency
//   (2) E4M3 is read as 2^-8 of its value (page_format.unit), and its NaN as the number 480
#ifndef KERNEL_X86_PAGE_FLOATS_H
#define KERNEL_X86_PAGE_FLOATS_H

#include "kernel/x86/page.h"

enum { MIX_VECTORS = LANES == 16 ? 4 : 2 }; // vectors of channels per QUERIES_SKINNY queries

typedef vec read_values(const uint8_t *row, int at); // LANES of them, from channel `at` on

ALWAYS_INLINE vec read_f32(const uint8_t *row, int at) { return vec_from_bits(ivec_load(row + 4 * at)); }

ALWAYS_INLINE vec read_f16(const uint8_t *row, int at) { return vec_from_f16(half_load(row + 2 * at)); }

ALWAYS_INLINE vec read_bf16(const uint8_t *row, int at) { return vec_from_bf16(half_load(row + 2 * at)); }

// Shifts E4M3 into f16's exponent and mantissa; the sign was extended to 16 bits.
ALWAYS_INLINE vec read_e4m3(const uint8_t *row, int at)
{
    return vec_from_f16(half_and(half_left(half_from_i8(row + at), 7), half_set((int16_t)0xBFFF)));
}

ALWAYS_INLINE vec read_e5m2(const uint8_t *row, int at) { return vec_from_f16(half_left(half_from_i8(row + at), 8)); }

// The latent's values, with group scales that include E4M3's unit, and the rotary channels.
ALWAYS_INLINE vec read_ds_mla(const uint8_t *row, int at)
{
    if (at >= KV_RECORD_LATENT)
        return read_bf16(row + KV_RECORD_ROPE_AT, at - KV_RECORD_LATENT);
    float scale;
    memcpy(&scale, row + KV_RECORD_SCALES_AT + at / KV_RECORD_GROUP * (int)sizeof scale, sizeof scale);
    return read_e4m3(row, at) * vec_set(scale * 0x1p8f);
}

// ---- K ----

// The consumer of K's columns: they are stored to `tile`, or multiplied by q and added to the sums of `count` queries
// (a constant after inlining).
struct column_use {
    float *tile;
    struct queries queries;
    int count;
    float *score;
    vec even[QUERIES_SKINNY], odd[QUERIES_SKINNY];
};

ALWAYS_INLINE void use_begin(struct column_use *use)
{
    for (int i = 0; i < use->count; i++)
        use->even[i] = use->odd[i] = vec_set(0);
}

// Channels [at, at + LANES) of the tokens from `token` on.
ALWAYS_INLINE void use_columns(struct column_use *use, int token, int at, const vec columns[LANES])
{
    for (int d = 0; d < LANES && use->tile; d++)
        vec_store(use->tile + (at + d) * KV_PAGE_TOKENS + token, columns[d]);
    for (int d = 0; d < LANES; d += 2)
        for (int i = 0; i < use->count; i++) {
            const float *q = use->queries.q + i * use->queries.dim + at + d;
            use->even[i] = vec_fma(columns[d], vec_set(q[0]), use->even[i]);
            use->odd[i] = vec_fma(columns[d + 1], vec_set(q[1]), use->odd[i]);
        }
}

ALWAYS_INLINE void use_end(struct column_use *use, int token)
{
    for (int i = 0; i < use->count; i++)
        vec_store(use->score + i * SEGMENT + token, use->even[i] + use->odd[i]);
}

ALWAYS_INLINE void walk_columns(const struct page_side *side, read_values *read, struct column_use *use)
{
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
        use_begin(use);
        for (int at = 0; at < side->dim; at += LANES) {
            vec columns[LANES];
            for (int i = 0; i < LANES; i++)
                columns[i] = read(side->data + (size_t)(token + i) * side->data_bytes, at);
            transpose(columns);
            use_columns(use, token, at, columns);
        }
        use_end(use, token);
    }
}

#define WALK(name)                                                                       \
    ALWAYS_INLINE void walk_##name(const struct page_side *side, struct column_use *use) \
    {                                                                                    \
        walk_columns(side, read_##name, use);                                            \
    }
WALK(f32)
WALK(f16)
WALK(e4m3)
WALK(e5m2)
WALK(ds_mla)
#undef WALK

// Transposes pairs of bf16 as 32-bit words, if rows are long enough.
ALWAYS_INLINE void walk_bf16(const struct page_side *side, struct column_use *use)
{
    if (side->dim % (2 * LANES)) {
        walk_columns(side, read_bf16, use);
        return;
    }
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
        use_begin(use);
        for (int at = 0; at < side->dim; at += 2 * LANES) {
            vec packed[LANES], columns[2 * LANES];
            lane_columns(side, token, 2 * at, packed);
            for (int i = 0; i < LANES; i++) {
                columns[2 * i] = vec_from_bits(ivec_left(vec_bits(packed[i]), 16));
                columns[2 * i + 1] = vec_from_bits(ivec_and(vec_bits(packed[i]), ivec_set((int32_t)0xFFFF0000)));
            }
            use_columns(use, token, at, columns);
            use_columns(use, token, at + LANES, columns + LANES);
        }
        use_end(use, token);
    }
}

ALWAYS_INLINE void score_float_tile(const struct page_tile *tile, struct queries queries, int first, int count,
                                    float *score)
{
    queries.q += first * queries.dim;
    struct column_use use = { .queries = queries, .count = count, .score = score + first * SEGMENT };
    for (int token = 0; token < KV_PAGE_TOKENS; token += LANES) {
        use_begin(&use);
        for (int at = 0; at < queries.dim; at += LANES) {
            vec columns[LANES];
            for (int d = 0; d < LANES; d++)
                columns[d] = vec_load(tile->value + (at + d) * KV_PAGE_TOKENS + token);
            use_columns(&use, token, at, columns);
        }
        use_end(&use, token);
    }
}

static void score_floats(const struct page_tile *tile, struct queries queries, int count, float *score)
{
    FOR_QUERIES(i, count, score_float_tile(tile, queries, i, QUERIES_SKINNY, score),
                score_float_tile(tile, queries, i, 1, score));
}

// ---- V ----

// The values of V: token t is at rows + t * row_bytes.
struct value_rows {
    const uint8_t *rows;
    size_t row_bytes;
    read_values *read;
};

// Sums of `count` queries in `vectors` vectors of channels; both are constants where this is inlined.
typedef vec mix_sums[QUERIES_SKINNY][MIX_VECTORS];

ALWAYS_INLINE void mix_load(mix_sums sum, const float *out, int dim, int count, int vectors)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = vec_load(out + i * dim + j * LANES);
}

ALWAYS_INLINE void mix_store(mix_sums sum, float *out, int dim, int count, int vectors)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < vectors; j++)
            vec_store(out + i * dim + j * LANES, sum[i][j]);
}

// Adds some tokens of a page, channels from `at` on.
ALWAYS_INLINE void mix_tokens(mix_sums sum, struct value_rows values, struct range tokens, const float *prob, int at,
                              int count, int vectors)
{
    for (int token = tokens.from; token < tokens.to; token++) {
        const uint8_t *row = values.rows + (size_t)token * values.row_bytes;
        vec value[MIX_VECTORS];
        for (int j = 0; j < vectors; j++)
            value[j] = values.read(row, at + j * LANES);
        for (int i = 0; i < count; i++) {
            vec weight = vec_set(prob[i * SEGMENT + token]);
            for (int j = 0; j < vectors; j++)
                sum[i][j] = vec_fma(weight, value[j], sum[i][j]);
        }
    }
}

ALWAYS_INLINE void mix_run_part(struct page_run run, read_values *read, struct range tokens, const float *prob, int dim,
                                int at, int count, int vectors, float *out)
{
    mix_sums sum;
    mix_load(sum, out + at, dim, count, vectors);
    for (int i = 0; i < run.count; i++) {
        int start = i * KV_PAGE_TOKENS;
        struct range slots = { tokens.from > start ? tokens.from - start : 0,
                               tokens.to - start < KV_PAGE_TOKENS ? tokens.to - start : KV_PAGE_TOKENS };
        if (at == 0)
            prefetch_ahead(run, i);
        mix_tokens(sum, (struct value_rows){ run.page[i].data, run.page[i].data_bytes, read }, slots, prob + start, at,
                   count, vectors);
    }
    mix_store(sum, out + at, dim, count, vectors);
}

ALWAYS_INLINE void mix_run(struct page_run run, read_values *read, struct range tokens, const float *prob, int count,
                           float *out)
{
    int at = 0, dim = run.page[0].dim;
    for (; at + MIX_VECTORS * LANES <= dim; at += MIX_VECTORS * LANES)
        mix_run_part(run, read, tokens, prob, dim, at, count, MIX_VECTORS, out);
    for (; at < dim; at += LANES)
        mix_run_part(run, read, tokens, prob, dim, at, count, 1, out);
}

ALWAYS_INLINE void mix_float_part(const float *tile, struct range tokens, const float *prob, int dim, int at, int count,
                                  int vectors, float *out)
{
    mix_sums sum;
    struct value_rows values = { (const uint8_t *)tile, (size_t)dim * sizeof(float), read_f32 };
    mix_load(sum, out + at, dim, count, vectors);
    mix_tokens(sum, values, tokens, prob, at, count, vectors);
    mix_store(sum, out + at, dim, count, vectors);
}

ALWAYS_INLINE void mix_float_tile(const float *tile, struct range tokens, const float *prob, int dim, int count,
                                  float *out)
{
    int at = 0;
    for (; at + MIX_VECTORS * LANES <= dim; at += MIX_VECTORS * LANES)
        mix_float_part(tile, tokens, prob, dim, at, count, MIX_VECTORS, out);
    for (; at < dim; at += LANES)
        mix_float_part(tile, tokens, prob, dim, at, count, 1, out);
}

static void mix_floats(const struct page_tile *tile, int dim, struct range tokens, const float *prob, int count,
                       float *out)
{
    FOR_QUERIES(i, count, mix_float_tile(tile->value, tokens, prob + i * SEGMENT, dim, QUERIES_SKINNY, out + i * dim),
                mix_float_tile(tile->value, tokens, prob + i * SEGMENT, dim, 1, out + i * dim));
}

ALWAYS_INLINE void dequantise_rows(const struct page_side *side, read_values *read, float *tile)
{
    for (int token = 0; token < KV_PAGE_TOKENS; token++)
        for (int at = 0; at < side->dim; at += LANES)
            vec_store(tile + token * side->dim + at, read(side->data + (size_t)token * side->data_bytes, at));
}

// ---- formats ----

#define FLOAT_FUNCTIONS_OF(id, number)                                                                            \
    static void score_##id##_##number(struct page_run run, struct queries queries, float *score)                  \
    {                                                                                                             \
        for (int i = 0; i < run.count; i++, score += KV_PAGE_TOKENS) {                                            \
            prefetch_ahead(run, i);                                                                               \
            walk_##id(&run.page[i], &(struct column_use){ .queries = queries, .count = number, .score = score }); \
        }                                                                                                         \
    }                                                                                                             \
    static void mix_##id##_##number(struct page_run run, struct range tokens, const float *prob, float *out)      \
    {                                                                                                             \
        mix_run(run, read_##id, tokens, prob, number, out);                                                       \
    }
#define FLOAT_FUNCTIONS(id)                                                             \
    FLOAT_FUNCTIONS_OF(id, 1)                                                           \
    FLOAT_FUNCTIONS_OF(id, 2)                                                           \
    FLOAT_FUNCTIONS_OF(id, 3)                                                           \
    FLOAT_FUNCTIONS_OF(id, 4)                                                           \
    static void dequantise_k_##id(const struct page_side *side, struct page_tile *tile) \
    {                                                                                   \
        walk_##id(side, &(struct column_use){ .tile = tile->value });                   \
    }                                                                                   \
    static void dequantise_v_##id(const struct page_side *side, struct page_tile *tile) \
    {                                                                                   \
        dequantise_rows(side, read_##id, tile->value);                                  \
    }
FLOAT_FUNCTIONS(f32)
FLOAT_FUNCTIONS(f16)
FLOAT_FUNCTIONS(bf16)
FLOAT_FUNCTIONS(e4m3)
FLOAT_FUNCTIONS(e5m2)
FLOAT_FUNCTIONS(ds_mla)

#define FLOAT_FORMAT(id, ...) { PAGE_FUNCTIONS(id), .score_tile = score_floats, .mix_tile = mix_floats, __VA_ARGS__ }

#endif
