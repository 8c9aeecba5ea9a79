// SPDX-License-Identifier: Apache-2.0
#include "kernel/ref/kv_codec.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "kernel/minifloat.h"

enum { NVFP4_BLOCK = 16 };

static void store_f32(const float *restrict x, int dim, float layer_scale, uint8_t *restrict data, uint8_t *scale)
{
    (void)layer_scale, (void)scale;
    memcpy(data, x, (size_t)dim * sizeof *x);
}

static void load_f32(const uint8_t *restrict data, const uint8_t *scale, int dim, float layer_scale, float *restrict x)
{
    (void)layer_scale, (void)scale;
    memcpy(x, data, (size_t)dim * sizeof *x);
}

#define HALF_CODEC(id)                                                                                    \
    static void store_##id(const float *restrict x, int dim, float layer_scale, uint8_t *restrict data,   \
                           uint8_t *scale)                                                                \
    {                                                                                                     \
        (void)layer_scale, (void)scale;                                                                   \
        for (int i = 0; i < dim; i++) {                                                                   \
            uint16_t code = f32_to_##id(x[i]);                                                            \
            memcpy(data + i * 2, &code, sizeof code);                                                     \
        }                                                                                                 \
    }                                                                                                     \
    static void load_##id(const uint8_t *restrict data, const uint8_t *scale, int dim, float layer_scale, \
                          float *restrict x)                                                              \
    {                                                                                                     \
        (void)layer_scale, (void)scale;                                                                   \
        for (int i = 0; i < dim; i++) {                                                                   \
            uint16_t code;                                                                                \
            memcpy(&code, data + i * 2, sizeof code);                                                     \
            x[i] = id##_to_f32(code);                                                                     \
        }                                                                                                 \
    }
HALF_CODEC(f16)
HALF_CODEC(bf16)

#define FP8_CODEC(id)                                                                                     \
    static void store_##id(const float *restrict x, int dim, float layer_scale, uint8_t *restrict data,   \
                           uint8_t *scale)                                                                \
    {                                                                                                     \
        (void)scale;                                                                                      \
        for (int i = 0; i < dim; i++)                                                                     \
            data[i] = f32_to_##id(x[i] / layer_scale);                                                    \
    }                                                                                                     \
    static void load_##id(const uint8_t *restrict data, const uint8_t *scale, int dim, float layer_scale, \
                          float *restrict x)                                                              \
    {                                                                                                     \
        (void)scale;                                                                                      \
        for (int i = 0; i < dim; i++)                                                                     \
            x[i] = id##_to_f32(data[i]) * layer_scale;                                                    \
    }
FP8_CODEC(e4m3)
FP8_CODEC(e5m2)

// The largest magnitude; NaN compares as false and is ignored.
static float magnitude_max(const float *x, int count)
{
    float max = 0;
    for (int i = 0; i < count; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    return max;
}

// The scale that maps a vector's largest magnitude to the largest code, at least `least`.
static float vector_scale(const float *x, int dim, float code_max, float least)
{
    float max = magnitude_max(x, dim);
    float scale = (max < KV_MAGNITUDE_MAX ? max : KV_MAGNITUDE_MAX) / code_max;
    return scale > least ? scale : least;
}

static float read_f32(const uint8_t bytes[4])
{
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void store_fp8_token(const float *restrict x, int dim, float layer_scale, uint8_t *restrict data, uint8_t *scale)
{
    (void)layer_scale;
    float own_scale = vector_scale(x, dim, 448, KV_SCALE_MIN);
    memcpy(scale, &own_scale, sizeof own_scale);
    store_e4m3(x, dim, own_scale, data, NULL);
}

static void load_fp8_token(const uint8_t *data, const uint8_t *scale, int dim, float layer_scale, float *x)
{
    (void)layer_scale;
    load_e4m3(data, NULL, dim, read_f32(scale), x);
}

// To the nearest integer of [least, most], halves away from zero; NaN gives 0.
static inline int round_within(float value, int least, int most)
{
    value = value >= (float)least ? value : isnan(value) ? 0 : (float)least;
    value = value <= (float)most ? value : (float)most;
    int whole = (int)value;
    float rest = value - (float)whole; // exact, unlike value + 0.5
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static void store_int8_token(const float *restrict x, int dim, float layer_scale, uint8_t *restrict data,
                             uint8_t *scale)
{
    (void)layer_scale;
    float own_scale = vector_scale(x, dim, 127, KV_SCALE_MIN);
    memcpy(scale, &own_scale, sizeof own_scale);
    for (int i = 0; i < dim; i++)
        data[i] = (uint8_t)round_within(x[i] / own_scale, -127, 127);
}

static void load_int8_token(const uint8_t *restrict data, const uint8_t *scale, int dim, float layer_scale,
                            float *restrict x)
{
    (void)layer_scale;
    float own_scale = read_f32(scale);
    for (int i = 0; i < dim; i++)
        x[i] = (float)(int8_t)data[i] * own_scale;
}

static void flip_signs(float *x, int dim)
{
    for (int start = 0; start < dim; start += 64) {
        uint64_t signs = kv_rotation_signs(start / 64);
        for (int i = start; i < dim && i < start + 64; i++, signs >>= 1)
            x[i] = f32_from_bits(f32_bits(x[i]) ^ (int32_t)((uint32_t)signs << 31));
    }
}

// Each stage combines neighbours and puts sums in the first half and differences in the second; after log2(dim)
// stages every index is back in its place.
static void hadamard(float *restrict x, int dim)
{
    float before[KV_INT4_DIM_MAX];
    for (int stage = 1; stage < dim; stage *= 2) {
        memcpy(before, x, (size_t)dim * sizeof *x);
        for (int i = 0; i < dim / 2; i++) {
            x[i] = before[i * 2] + before[i * 2 + 1];
            x[i + dim / 2] = before[i * 2] - before[i * 2 + 1];
        }
    }
}

// The rotation mixes all channels, so values that are not finite are replaced first.
static float bounded(float value)
{
    value = value >= -KV_MAGNITUDE_MAX ? value : isnan(value) ? 0 : -KV_MAGNITUDE_MAX;
    return value <= KV_MAGNITUDE_MAX ? value : KV_MAGNITUDE_MAX;
}

static void store_int4_token(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale;
    assert(dim >= 2 && dim <= KV_INT4_DIM_MAX && (dim & (dim - 1)) == 0);
    float y[KV_INT4_DIM_MAX];
    for (int i = 0; i < dim; i++)
        y[i] = bounded(x[i]);
    flip_signs(y, dim);
    hadamard(y, dim);

    float least = 0, most = 0; // zero must be in the range, as the zero point is 0..15
    for (int i = 0; i < dim; i++) {
        least = y[i] < least ? y[i] : least;
        most = y[i] > most ? y[i] : most;
    }
    float wanted = (most - least) / 15;
    int32_t bits = f32_bits(wanted > KV_SCALE_MIN ? wanted : KV_SCALE_MIN) & ~15;
    float own_scale = f32_from_bits(bits);
    int zero = round_within(-least / own_scale, 0, 15);
    bits |= zero;
    memcpy(scale, &bits, sizeof bits);
    for (int i = 0; i < dim; i += 2) {
        int low = round_within(y[i] / own_scale + (float)zero, 0, 15);
        int high = round_within(y[i + 1] / own_scale + (float)zero, 0, 15);
        data[i / 2] = (uint8_t)(low | high << 4);
    }
}

static void load_int4_token(const uint8_t *restrict data, const uint8_t *scale, int dim, float layer_scale,
                            float *restrict x)
{
    (void)layer_scale;
    assert(dim >= 2 && dim <= KV_INT4_DIM_MAX && (dim & (dim - 1)) == 0);
    int32_t bits = f32_bits(read_f32(scale));
    float own_scale = f32_from_bits(bits & ~15) / (float)dim; // exact: dim is a power of two
    int zero = bits & 15;
    for (int i = 0; i < dim; i += 2) {
        x[i] = (float)((data[i / 2] & 15) - zero) * own_scale;
        x[i + 1] = (float)((data[i / 2] >> 4) - zero) * own_scale;
    }
    hadamard(x, dim);
    flip_signs(x, dim);
}

// Sixteen values of x as E2M1 codes under one E4M3 scale.
struct nvfp4_block {
    uint8_t scale, codes[NVFP4_BLOCK];
};

// The E4M3 scale nearest to mapping the block's largest magnitude to `level`.
static uint8_t nvfp4_scale(const float *x, float level, float layer_scale)
{
    return f32_to_e4m3(magnitude_max(x, NVFP4_BLOCK) / level / layer_scale);
}

static struct nvfp4_block nvfp4_fit(const float *x, uint8_t scale, float layer_scale)
{
    struct nvfp4_block block = { .scale = scale };
    float step = e4m3_to_f32(scale) * layer_scale;
    float inverse = step > 0 ? 1 / step : 0;
    for (int i = 0; i < NVFP4_BLOCK; i++)
        block.codes[i] = f32_to_e2m1(x[i] * inverse);
    return block;
}

static float nvfp4_squared_error(const struct nvfp4_block *block, const float *x, float layer_scale)
{
    float scale = e4m3_to_f32(block->scale), squares[NVFP4_BLOCK];
    for (int i = 0; i < NVFP4_BLOCK; i++) {
        float error = x[i] - e2m1_to_f32(block->codes[i]) * scale * layer_scale;
        squares[i] = error * error;
    }
    for (int half = NVFP4_BLOCK / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            squares[i] += squares[i + half];
    return squares[0];
}

// The candidate scale with the least squared error; ties to the first.
static struct nvfp4_block nvfp4_best(const float *x, const uint8_t *scales, int count, float layer_scale)
{
    struct nvfp4_block best = nvfp4_fit(x, scales[0], layer_scale);
    float least = nvfp4_squared_error(&best, x, layer_scale);
    for (int i = 1; i < count; i++) {
        struct nvfp4_block block = nvfp4_fit(x, scales[i], layer_scale);
        float error = nvfp4_squared_error(&block, x, layer_scale);
        if (error < least) {
            best = block;
            least = error;
        }
    }
    return best;
}

static void nvfp4_put(const struct nvfp4_block *block, uint8_t *data, uint8_t *scale)
{
    *scale = block->scale;
    for (int i = 0; i < NVFP4_BLOCK / 2; i++)
        data[i] = (uint8_t)(block->codes[i * 2] | block->codes[i * 2 + 1] << 4);
}

static void store_nvfp4(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    assert(dim % NVFP4_BLOCK == 0);
    for (int i = 0; i < dim; i += NVFP4_BLOCK) {
        struct nvfp4_block block = nvfp4_fit(x + i, nvfp4_scale(x + i, 6, layer_scale), layer_scale);
        nvfp4_put(&block, data + i / 2, scale + i / NVFP4_BLOCK);
    }
}

static void store_nvfp4_searched(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    assert(dim % NVFP4_BLOCK == 0);
    for (int i = 0; i < dim; i += NVFP4_BLOCK) {
        uint8_t scales[KV_SCALES_TRIED] = { nvfp4_scale(x + i, 6, layer_scale) };
        for (int j = 1; j < KV_SCALES_TRIED; j++)
            scales[j] = (uint8_t)kv_scale_tried(scales[0], j);
        struct nvfp4_block block = nvfp4_best(x + i, scales, KV_SCALES_TRIED, layer_scale);
        nvfp4_put(&block, data + i / 2, scale + i / NVFP4_BLOCK);
    }
}

// Four-over-six: E2M1 is coarse above 4, so a block may map its largest magnitude to 4 instead of 6 if that lowers the
// error.
static void store_nvfp4_4over6(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    assert(dim % NVFP4_BLOCK == 0);
    for (int i = 0; i < dim; i += NVFP4_BLOCK) {
        const uint8_t scales[] = { nvfp4_scale(x + i, 6, layer_scale), nvfp4_scale(x + i, 4, layer_scale) };
        struct nvfp4_block block = nvfp4_best(x + i, scales, 2, layer_scale);
        nvfp4_put(&block, data + i / 2, scale + i / NVFP4_BLOCK);
    }
}

static void load_nvfp4(const uint8_t *restrict data, const uint8_t *restrict scale, int dim, float layer_scale,
                       float *restrict x)
{
    assert(dim % NVFP4_BLOCK == 0);
    for (int block = 0; block < dim / NVFP4_BLOCK; block++, data += NVFP4_BLOCK / 2, x += NVFP4_BLOCK) {
        float block_scale = e4m3_to_f32(scale[block]);
        for (int i = 0; i < NVFP4_BLOCK / 2; i++) { // the first product is exact
            x[i * 2] = e2m1_to_f32(data[i] & 15) * block_scale * layer_scale;
            x[i * 2 + 1] = e2m1_to_f32(data[i] >> 4) * block_scale * layer_scale;
        }
    }
}

// One scale per 128 channels of the latent; a group of zeros has the least scale.
static void store_ds_mla(const float *x, int dim, float layer_scale, uint8_t *data, uint8_t *scale)
{
    (void)layer_scale, (void)scale;
    assert(dim == KV_RECORD_LATENT + KV_RECORD_ROPE);
    for (int i = 0; i < KV_RECORD_LATENT; i += KV_RECORD_GROUP) {
        float own_scale = vector_scale(x + i, KV_RECORD_GROUP, 448, FLT_MIN);
        memcpy(data + KV_RECORD_SCALES_AT + i / KV_RECORD_GROUP * (int)sizeof own_scale, &own_scale, sizeof own_scale);
        store_e4m3(x + i, KV_RECORD_GROUP, own_scale, data + i, NULL);
    }
    store_bf16(x + KV_RECORD_LATENT, KV_RECORD_ROPE, 1, data + KV_RECORD_ROPE_AT, NULL);
}

static void load_ds_mla(const uint8_t *data, const uint8_t *scale, int dim, float layer_scale, float *x)
{
    (void)layer_scale, (void)scale;
    assert(dim == KV_RECORD_LATENT || dim == KV_RECORD_LATENT + KV_RECORD_ROPE);
    for (int i = 0; i < KV_RECORD_LATENT; i += KV_RECORD_GROUP)
        load_e4m3(data + i, NULL, KV_RECORD_GROUP,
                  read_f32(data + KV_RECORD_SCALES_AT + i / KV_RECORD_GROUP * (int)sizeof(float)), x + i);
    load_bf16(data + KV_RECORD_ROPE_AT, NULL, dim - KV_RECORD_LATENT, 1, x + KV_RECORD_LATENT);
}

const struct kv_codec kv_codecs[DTYPE_COUNT] = {
    [DTYPE_F32] = { store_f32, load_f32 },
    [DTYPE_F16] = { store_f16, load_f16 },
    [DTYPE_BF16] = { store_bf16, load_bf16 },
    [DTYPE_FP8_E4M3] = { store_e4m3, load_e4m3 },
    [DTYPE_FP8_E5M2] = { store_e5m2, load_e5m2 },
    [DTYPE_INT8_TOKEN] = { store_int8_token, load_int8_token },
    [DTYPE_FP8_TOKEN] = { store_fp8_token, load_fp8_token },
    [DTYPE_INT4_TOKEN] = { store_int4_token, load_int4_token },
    [DTYPE_NVFP4] = { store_nvfp4, load_nvfp4, store_nvfp4_searched },
    [DTYPE_NVFP4_4OVER6] = { store_nvfp4_4over6, load_nvfp4 },
    [DTYPE_FP8_DS_MLA] = { store_ds_mla, load_ds_mla },
};
