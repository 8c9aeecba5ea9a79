// SPDX-License-Identifier: Apache-2.0
// kernel/x86/kv_write.c: quantises K and V into their pages. The bytes are equal to the reference's
// (kernel/ref/kv_codec.c).
#include <float.h>
#include <math.h>

#include "kernel/kernel.h"
#include "kernel/minifloat.h"
#include "kernel/x86/table.h"
#include "kernel/x86/rotation.h"

typedef void store_vector(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale);

enum { STORE_BLOCK = 16, BLOCK_PARTS = STORE_BLOCK / LANES };

// ---- small floats ----

// minifloat_round of kernel/minifloat.h, lane by lane.
ALWAYS_INLINE ivec round_magnitude(ivec bits, int32_t largest, int mantissa, int bias)
{
    int drop = F32_MANTISSA - mantissa;
    ivec grid = ivec_set((F32_BIAS + 1 - bias + drop) << F32_MANTISSA);
    bits = ivec_min(bits, ivec_set(largest));
    ivec subnormal = ivec_sub(vec_bits(vec_add(vec_from_bits(bits), vec_from_bits(grid))), grid);
    ivec odd = ivec_and(ivec_right(bits, (unsigned)drop), ivec_set(1));
    ivec rounded = ivec_add(ivec_add(bits, ivec_set((1 << (drop - 1)) - 1)), odd);
    ivec normal = ivec_sub(ivec_right(rounded, (unsigned)drop), ivec_set((F32_BIAS - bias) << mantissa));
    return ivec_if_less(bits, ivec_set((F32_BIAS + 1 - bias) << F32_MANTISSA), subnormal, normal);
}

// `code`, or `nan` where x is NaN, with the sign of x at bit `sign`.
ALWAYS_INLINE ivec with_sign(vec x, ivec code, int32_t nan, unsigned sign)
{
    ivec bits = vec_bits(x), magnitude = ivec_and(bits, ivec_set(F32_MAGNITUDE));
    ivec chosen = ivec_if_less(ivec_set(F32_INFINITY), magnitude, ivec_set(nan), code);
    return ivec_or(chosen, ivec_and(ivec_right(bits, 31 - sign), ivec_set(1 << sign)));
}

ALWAYS_INLINE ivec magnitude_of(vec x) { return ivec_and(vec_bits(x), ivec_set(F32_MAGNITUDE)); }

ALWAYS_INLINE ivec to_bf16(vec x)
{
    ivec finite = ivec_min(magnitude_of(x), ivec_set(F32_INFINITY));
    ivec odd = ivec_and(ivec_right(finite, 16), ivec_set(1));
    return with_sign(x, ivec_right(ivec_add(ivec_add(finite, ivec_set(0x7FFF)), odd), 16), 0x7FC0, 15);
}

ALWAYS_INLINE ivec to_e4m3(vec x)
{
    return with_sign(x, round_magnitude(magnitude_of(x), 0x43E00000 /* 448 */, 3, 7), 0x7F, 7);
}

ALWAYS_INLINE ivec to_e5m2(vec x)
{
    return with_sign(x, round_magnitude(magnitude_of(x), 0x47600000 /* 57344 */, 2, 15), 0x7F, 7);
}

// NaN is 0, without a sign.
ALWAYS_INLINE ivec to_e2m1(vec x)
{
    ivec code = round_magnitude(magnitude_of(x), 0x40C00000 /* 6 */, 1, 1);
    ivec sign = ivec_and(ivec_right(vec_bits(x), 28), ivec_set(8));
    return ivec_if_less(ivec_set(F32_INFINITY), magnitude_of(x), ivec_set(0), ivec_or(code, sign));
}

static void store_f32(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale, (void)scale;
    memcpy(data, x, (size_t)dim * sizeof *x);
}

static void store_f16(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale, (void)scale;
    for (int i = 0; i < dim; i += LANES) {
        vec value = vec_load(x + i);
        ivec code = ivec_from_u16(vec_to_f16(value));
        code = with_sign(value, ivec_and(code, ivec_set(0x7FFF)), 0x7E00, 15);
        half_store(data + 2 * i, ivec_to_u16(code));
    }
}

static void store_bf16(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale, (void)scale;
    for (int i = 0; i < dim; i += LANES)
        half_store(data + 2 * i, ivec_to_u16(to_bf16(vec_load(x + i))));
}

static void store_e4m3(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)scale;
    for (int i = 0; i < dim; i += LANES)
        ivec_store_u8(data + i, to_e4m3(vec_load(x + i) / vec_set(layer_scale)));
}

static void store_e5m2(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)scale;
    for (int i = 0; i < dim; i += LANES)
        ivec_store_u8(data + i, to_e5m2(vec_load(x + i) / vec_set(layer_scale)));
}

// ---- a scale per token ----

// The largest magnitude; NaN is passed over.
ALWAYS_INLINE float magnitude_max(const float *x, int count)
{
    vec most = vec_set(0);
    for (int i = 0; i < count; i += LANES)
        most = vec_max(vec_abs(vec_load(x + i)), most);
    return vec_largest(most);
}

static float vector_scale(const float *x, int dim, float code_max, float least)
{
    float max = magnitude_max(x, dim);
    float scale = (max < KV_MAGNITUDE_MAX ? max : KV_MAGNITUDE_MAX) / code_max;
    return scale > least ? scale : least;
}

static void store_fp8_token(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale;
    float own_scale = vector_scale(x, dim, 448, KV_SCALE_MIN);
    memcpy(scale, &own_scale, sizeof own_scale);
    store_e4m3(x, dim, own_scale, data, NULL);
}

// Within [least, most], and `nan` where it is NaN.
ALWAYS_INLINE vec bounded(vec x, float least, float most, float nan)
{
    ivec number = ivec_if_less(ivec_set(F32_INFINITY), magnitude_of(x), vec_bits(vec_set(nan)), vec_bits(x));
    return vec_min(vec_set(most), vec_max(vec_set(least), vec_from_bits(number)));
}

// To the nearest integer of [least, most], halves away from zero; NaN gives 0.
ALWAYS_INLINE ivec round_within(vec x, float least, float most)
{
    vec value = bounded(x, least, most, 0);
    ivec whole = vec_truncate(value);
    vec rest = value - vec_from_int(whole);
    ivec zero = ivec_set(0), one = ivec_set(1);
    ivec up = vec_choose_less(rest, vec_set(0.5f), zero, one), down = vec_choose_less(vec_set(-0.5f), rest, zero, one);
    return ivec_sub(ivec_add(whole, up), down);
}

static void store_int8_token(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale;
    float own_scale = vector_scale(x, dim, 127, KV_SCALE_MIN);
    memcpy(scale, &own_scale, sizeof own_scale);
    for (int i = 0; i < dim; i += LANES)
        ivec_store_u8(data + i, round_within(vec_load(x + i) / vec_set(own_scale), -127, 127));
}

static void store_int4_token(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale;
    float y[KV_INT4_DIM_MAX];
    for (int i = 0; i < dim; i += LANES)
        vec_store(y + i, bounded(vec_load(x + i), -KV_MAGNITUDE_MAX, KV_MAGNITUDE_MAX, 0));
    rotate(y, dim);

    vec least = vec_set(0), most = vec_set(0);
    for (int i = 0; i < dim; i += LANES) {
        least = vec_min(vec_load(y + i), least);
        most = vec_max(vec_load(y + i), most);
    }
    float lowest = -vec_largest(-least), wanted = (vec_largest(most) - lowest) / 15;
    int32_t bits = f32_bits(wanted > KV_SCALE_MIN ? wanted : KV_SCALE_MIN) & ~15;
    vec own_scale = vec_set(f32_from_bits(bits));
    int32_t zero[LANES];
    ivec_store(zero, round_within(-vec_set(lowest) / own_scale, 0, 15));
    bits |= zero[0];
    memcpy(scale, &bits, sizeof bits);
    for (int i = 0; i < dim; i += LANES)
        ivec_store_nibbles(data + i / 2, round_within(vec_load(y + i) / own_scale + vec_set((float)zero[0]), 0, 15));
}

// ---- a scale per block ----

// The E4M3 scale nearest to mapping the block's largest magnitude to `level`.
ALWAYS_INLINE uint8_t block_scale(const float *x, float level, float layer_scale)
{
    return f32_to_e4m3(magnitude_max(x, STORE_BLOCK) / level / layer_scale);
}

// The factor that converts values to units of a scale.
ALWAYS_INLINE float inverse_of(float scale, float layer_scale)
{
    float step = scale * layer_scale;
    return step > 0 ? 1 / step : 0;
}

// Sixteen values of x as E2M1 codes under one E4M3 scale.
ALWAYS_INLINE void put_block(const float *x, uint8_t scale, float layer_scale, uint8_t *data, uint8_t *scale_at)
{
    vec inverse = vec_set(inverse_of(e4m3_to_f32(scale), layer_scale));
    *scale_at = scale;
    for (int i = 0; i < BLOCK_PARTS; i++)
        ivec_store_nibbles(data + i * LANES / 2, to_e2m1(vec_load(x + i * LANES) * inverse));
}

// Rounds to the nearest E2M1 value, 0 0.5 1 1.5 2 3 4 6, ties to the even code, as to_e2m1 does. Adding an f32 whose
// ulp is the spacing rounds to it.
ALWAYS_INLINE vec round_e2m1(vec magnitude)
{
    const vec half = vec_set(0x1.8p22f), one = vec_set(0x1.8p23f), two = vec_set(0x1.8p24f);
    vec bounded = vec_min(magnitude, vec_set(6));
    vec grid = vec_if_less(bounded, vec_set(2), half, vec_if_less(bounded, vec_set(4), one, two));
    return vec_add(bounded, grid) - grid;
}

ALWAYS_INLINE float squared_error(const float *x, float scale, float layer_scale)
{
    vec inverse = vec_set(inverse_of(scale, layer_scale)), sum = vec_set(0);
    for (int i = 0; i < BLOCK_PARTS; i++) {
        vec magnitude = vec_abs(vec_load(x + i * LANES));
        vec error = magnitude - round_e2m1(magnitude * inverse) * vec_set(scale) * vec_set(layer_scale);
        sum = sum + error * error;
    }
    return vec_sum(sum);
}

// The scale with the least squared error, ties to the first; branchless, since the outcome is unpredictable.
ALWAYS_INLINE uint8_t best_scale(const float *x, const uint8_t *scales, int count, float layer_scale)
{
    uint8_t best = scales[0];
    float least = squared_error(x, e4m3_to_f32(best), layer_scale);
    for (int i = 1; i < count; i++) {
        float error = squared_error(x, e4m3_to_f32(scales[i]), layer_scale);
        best = error < least ? scales[i] : best;
        least = error < least ? error : least;
    }
    return best;
}

static void store_nvfp4(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    for (int i = 0; i < dim; i += STORE_BLOCK)
        put_block(x + i, block_scale(x + i, 6, layer_scale), layer_scale, data + i / 2, scale + i / STORE_BLOCK);
}

static void store_nvfp4_searched(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    for (int i = 0; i < dim; i += STORE_BLOCK) {
        uint8_t scales[KV_SCALES_TRIED] = { block_scale(x + i, 6, layer_scale) };
        for (int j = 1; j < KV_SCALES_TRIED; j++)
            scales[j] = (uint8_t)kv_scale_tried(scales[0], j);
        put_block(x + i, best_scale(x + i, scales, KV_SCALES_TRIED, layer_scale), layer_scale, data + i / 2,
                  scale + i / STORE_BLOCK);
    }
}

static void store_nvfp4_4over6(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    for (int i = 0; i < dim; i += STORE_BLOCK) {
        const uint8_t scales[] = { block_scale(x + i, 6, layer_scale), block_scale(x + i, 4, layer_scale) };
        put_block(x + i, best_scale(x + i, scales, 2, layer_scale), layer_scale, data + i / 2, scale + i / STORE_BLOCK);
    }
}

// ---- a record ----

static void store_ds_mla(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)dim, (void)layer_scale, (void)scale;
    for (int i = 0; i < KV_RECORD_LATENT; i += KV_RECORD_GROUP) {
        float own_scale = vector_scale(x + i, KV_RECORD_GROUP, 448, FLT_MIN);
        memcpy(data + KV_RECORD_SCALES_AT + i / KV_RECORD_GROUP * (int)sizeof own_scale, &own_scale, sizeof own_scale);
        store_e4m3(x + i, KV_RECORD_GROUP, own_scale, data + i, NULL);
    }
    store_bf16(x + KV_RECORD_LATENT, KV_RECORD_ROPE, 1, data + KV_RECORD_ROPE_AT, NULL);
}

static store_vector *const searched[DTYPE_COUNT] = { [DTYPE_NVFP4] = store_nvfp4_searched };

static store_vector *const stores[DTYPE_COUNT] = {
    [DTYPE_F32] = store_f32,
    [DTYPE_F16] = store_f16,
    [DTYPE_BF16] = store_bf16,
    [DTYPE_FP8_E4M3] = store_e4m3,
    [DTYPE_FP8_E5M2] = store_e5m2,
    [DTYPE_INT8_TOKEN] = store_int8_token,
    [DTYPE_FP8_TOKEN] = store_fp8_token,
    [DTYPE_INT4_TOKEN] = store_int4_token,
    [DTYPE_NVFP4] = store_nvfp4,
    [DTYPE_NVFP4_4OVER6] = store_nvfp4_4over6,
    [DTYPE_FP8_DS_MLA] = store_ds_mla,
};

// ---- the op ----

// One head's vector of one row. x: (rows, heads, dim).
static void store_head(const struct kv_side *side, const float *x, int row, int head, float layer_scale, bool search,
                       uint8_t *layer, int slot)
{
    size_t vector = (size_t)row * (size_t)side->heads + (size_t)head;
    store_vector *store = search && searched[side->dtype] ? searched[side->dtype] : stores[side->dtype];
    store(x + vector * (size_t)side->dim, side->dim, layer_scale, layer + kv_data_at(side, head, slot),
          layer + kv_scale_at(side, head, slot));
}

void ISA_NAME(kv_write)(const void *arguments, int chunk, int chunks)
{
    const struct kv_write_args *args = arguments;
    int heads = args->cache.layout.k.heads, first, end;
    kernel_range(args->batch->tokens * heads, chunk, chunks, &first, &end);
    for (int s = 0; s < args->batch->sequences; s++) {
        const struct batch_sequence *sequence = &args->batch->sequence[s];
        int from = sequence->first * heads, to = from + sequence->count * heads;
        for (int i = from > first ? from : first; i < to && i < end; i++) {
            int row = i / heads, position = args->batch->positions[row], page = position / KV_PAGE_TOKENS;
            const struct kv_place *place = page < args->sink_pages ? &args->sink : &args->cache;
            int32_t number = sequence->pages[place->class_index][page];
            uint8_t *layer = place->pool + (size_t)number * place->page_bytes + place->layer_offset;
            store_head(&place->layout.k, args->k, row, i % heads, place->k_scale, args->scale_search, layer,
                       position % KV_PAGE_TOKENS);
            if (!place->layout.latent)
                store_head(&place->layout.v, args->v, row, i % heads, place->v_scale, args->scale_search, layer,
                           position % KV_PAGE_TOKENS);
        }
    }
}
