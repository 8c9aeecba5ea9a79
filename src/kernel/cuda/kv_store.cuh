// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_store.cuh: how a key or value becomes the bytes of its cache format, by the lanes that hold its vector
// (kernel/cuda/vector.cuh). The reference's arithmetic, operation by operation (kernel/ref/kv_codec.c), so that equal
// values give equal bytes: where two operations could become one, they are spelled apart.
#ifndef KERNEL_CUDA_KV_STORE_CUH
#define KERNEL_CUDA_KV_STORE_CUH

#include "kernel/cuda/vector.cuh"
#include "kernel/ref/kv_codec.h"

// Where a lane's part goes. Lanes without one take part in what the vector's lanes find out together.
struct kv_target {
    uint8_t *data, *scale; // of the vector
    int dim, lane, lanes;
    bool there;
    float layer_scale;
    bool search;           // scales of least square error, for formats that leave a choice
};

// Writes BYTES bytes of codes, as many of them as the vector has values for.
template <int BYTES> DEVICE void kv_put(const struct kv_target &to, const uint32_t codes[BYTES / 4])
{
    uint8_t *data = to.data + to.lane * BYTES;
    int left = to.dim * BYTES / VECTOR_PART - to.lane * BYTES;
    if (!to.there || left <= 0)
        return;
    if (vector_is_whole(to.dim)) {
        if (BYTES == 8)
            *(uint2 *)data = make_uint2(codes[0], codes[1]);
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++)
            *(uint4 *)(data + i * 16) = make_uint4(codes[i * 4], codes[i * 4 + 1], codes[i * 4 + 2], codes[i * 4 + 3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < BYTES; i++)
        if (i < left)
            data[i] = (uint8_t)(codes[i / 4] >> i % 4 * 8);
}

// The scale of a whole vector, by its first lane.
DEVICE void kv_put_scale(const struct kv_target &to, float scale)
{
    if (to.there && to.lane == 0)
        *(float *)to.scale = scale;
}

// One code per value, BITS each, packed from the low end.
template <int BITS, class Encode>
DEVICE void kv_put_codes(const struct kv_target &to, const float x[VECTOR_PART], Encode encode)
{
    uint32_t codes[VECTOR_PART * BITS / 32] = {};
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        codes[i * BITS / 32] |= (uint32_t)encode(x[i]) << i * BITS % 32;
    kv_put<VECTOR_PART * BITS / 8>(to, codes);
}

// The largest magnitude; NaN is passed over.
DEVICE float magnitude_max(const float x[VECTOR_PART])
{
    float max = 0;
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        max = fmaxf(max, fabsf(x[i]));
    return max;
}

DEVICE float vector_scale(const struct kv_target &to, const float x[VECTOR_PART], float code_max)
{
    float max = lanes_max(magnitude_max(x), to.lanes);
    float scale = fminf(max, KV_MAGNITUDE_MAX) / code_max;
    return scale > KV_SCALE_MIN ? scale : KV_SCALE_MIN;
}

// To the nearest integer of [least, most], halves away from zero; NaN gives 0.
DEVICE int round_within(float value, int least, int most)
{
    value = value >= (float)least ? value : isnan(value) ? 0.0f : (float)least;
    value = value <= (float)most ? value : (float)most;
    int whole = (int)value;
    float rest = value - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

DEVICE void kv_store_fp8_token(const struct kv_target &to, const float x[VECTOR_PART])
{
    float scale = vector_scale(to, x, 448);
    kv_put_scale(to, scale);
    kv_put_codes<8>(to, x, [=](float value) { return f32_to_e4m3(value / scale); });
}

DEVICE void kv_store_int8_token(const struct kv_target &to, const float x[VECTOR_PART])
{
    float scale = vector_scale(to, x, 127);
    kv_put_scale(to, scale);
    kv_put_codes<8>(to, x, [=](float value) { return (uint8_t)round_within(value / scale, -127, 127); });
}

// ---- int4_per_token_head ----

DEVICE float bounded(float value)
{
    value = value >= -KV_MAGNITUDE_MAX ? value : isnan(value) ? 0.0f : -KV_MAGNITUDE_MAX;
    return value <= KV_MAGNITUDE_MAX ? value : KV_MAGNITUDE_MAX;
}

// Signs and Hadamard matrix.
DEVICE void rotate(const struct kv_target &to, float x[VECTOR_PART])
{
    int first = to.lane * VECTOR_PART;
    uint64_t signs = kv_rotation_signs(first / 64) >> first % 64;
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        x[i] = __uint_as_float(__float_as_uint(bounded(x[i])) ^ (uint32_t)(signs >> i) << 31);
    vector_mix(to.lane, to.dim, x);
}

DEVICE void kv_store_int4_token(const struct kv_target &to, float x[VECTOR_PART])
{
    rotate(to, x);
    float least = 0, most = 0; // zero is within the range, even if no value is that small
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
    }
    least = -lanes_max(-least, to.lanes);
    most = lanes_max(most, to.lanes);
    float wanted = (most - least) / 15;
    int32_t bits = f32_bits(wanted > KV_SCALE_MIN ? wanted : KV_SCALE_MIN) & ~15;
    float scale = f32_from_bits(bits);
    int zero = round_within(-least / scale, 0, 15);
    kv_put_scale(to, f32_from_bits(bits | zero));
    kv_put_codes<4>(to, x, [=](float value) { return round_within(__fadd_rn(value / scale, (float)zero), 0, 15); });
}

// ---- nvfp4 ----

// What values are multiplied with to be in units of a scale.
DEVICE float nvfp4_inverse(float scale, float layer_scale)
{
    float step = __fmul_rn(scale, layer_scale);
    return step > 0 ? 1 / step : 0;
}

// The nearest of E2M1's values, of halves the one with the even code, as f32_to_e2m1 rounds it: an f32 whose last place
// is the distance between two of them, when added, rounds to it.
DEVICE float round_e2m1(float magnitude)
{
    float bounded = fminf(magnitude, 6);
    float grid = bounded < 2 ? 0x1.8p22f : bounded < 4 ? 0x1.8p23f : 0x1.8p24f;
    return __fsub_rn(__fadd_rn(bounded, grid), grid);
}

DEVICE float nvfp4_squared_error(const float x[VECTOR_PART], float scale, float layer_scale)
{
    float inverse = nvfp4_inverse(scale, layer_scale), squares[VECTOR_PART];
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++) {
        float value = __fmul_rn(round_e2m1(__fmul_rn(fabsf(x[i]), inverse)), scale);
        float error = __fsub_rn(fabsf(x[i]), __fmul_rn(value, layer_scale));
        squares[i] = __fmul_rn(error, error);
    }
#pragma unroll
    for (int half = VECTOR_PART / 2; half; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++)
            squares[i] = __fadd_rn(squares[i], squares[i + half]);
    return squares[0];
}

// The scale of a lane's sixteen values: the first, or a further one with less error.
DEVICE uint8_t nvfp4_scale(const struct kv_target &to, const float x[VECTOR_PART], bool four_over_six)
{
    float max = magnitude_max(x);
    uint8_t first = f32_to_e4m3(max / 6 / to.layer_scale), best = first;
    int count = four_over_six ? 2 : to.search ? (int)KV_SCALES_TRIED : 1;
    float least = count > 1 ? nvfp4_squared_error(x, e4m3_to_f32(first), to.layer_scale) : 0;
#pragma unroll 1
    for (int i = 1; i < count; i++) {
        uint8_t scale = four_over_six ? f32_to_e4m3(max / 4 / to.layer_scale) : (uint8_t)kv_scale_tried(first, i);
        float error = nvfp4_squared_error(x, e4m3_to_f32(scale), to.layer_scale);
        best = error < least ? scale : best;
        least = error < least ? error : least;
    }
    return best;
}

DEVICE void kv_store_nvfp4(const struct kv_target &to, const float x[VECTOR_PART], bool four_over_six)
{
    uint8_t scale = nvfp4_scale(to, x, four_over_six);
    float inverse = nvfp4_inverse(e4m3_to_f32(scale), to.layer_scale);
    kv_put_codes<4>(to, x, [=](float value) { return f32_to_e2m1(value * inverse); });
    if (to.there && to.lane * VECTOR_PART < to.dim)
        to.scale[to.lane] = scale;
}

// ---- all formats ----

// All lanes of the warp must come, with the same format.
DEVICE void kv_store(int dtype, const struct kv_target &to, float x[VECTOR_PART])
{
    float layer_scale = to.layer_scale;
    switch (dtype) {
    case DTYPE_F32:
        return kv_put_codes<32>(to, x, [](float value) { return __float_as_uint(value); });
    case DTYPE_F16:
        return kv_put_codes<16>(to, x, [](float value) { return f32_to_f16(value); });
    case DTYPE_BF16:
        return kv_put_codes<16>(to, x, [](float value) { return f32_to_bf16(value); });
    case DTYPE_FP8_E4M3:
        return kv_put_codes<8>(to, x, [=](float value) { return f32_to_e4m3(value / layer_scale); });
    case DTYPE_FP8_E5M2:
        return kv_put_codes<8>(to, x, [=](float value) { return f32_to_e5m2(value / layer_scale); });
    case DTYPE_INT8_TOKEN:
        return kv_store_int8_token(to, x);
    case DTYPE_FP8_TOKEN:
        return kv_store_fp8_token(to, x);
    case DTYPE_INT4_TOKEN:
        return kv_store_int4_token(to, x);
    case DTYPE_NVFP4:
        return kv_store_nvfp4(to, x, false);
    case DTYPE_NVFP4_4OVER6:
        return kv_store_nvfp4(to, x, true);
    }
}

#endif
