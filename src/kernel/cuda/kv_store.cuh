// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_store.cuh: quantisation of a key or value to its cache format, by the lanes that hold its vector
// (kernel/cuda/vector.cuh). The arithmetic is that of the reference, operation by operation (kernel/ref/kv_codec.c), so
// that equal values give equal bytes: intrinsics keep the compiler from contracting operations.
#ifndef KERNEL_CUDA_KV_STORE_CUH
#define KERNEL_CUDA_KV_STORE_CUH

#include "kernel/cuda/vector.cuh"
#include "kernel/ref/kv_codec.h"

// Where a lane's part is stored. Lanes without one still take part in reductions over the vector's lanes.
struct kv_target {
    uint8_t *data, *scale; // of the vector
    int dim, lane, lanes;
    bool there;
    float layer_scale;
    bool search; // scales of least squared error, for formats that leave a choice
};

// Writes a lane's codes, BITS each, as many of them as the vector has values.
template <int PART, int BITS>
DEVICE void kv_put(const struct kv_target &to, const uint32_t (&codes)[(PART * BITS + 31) / 32])
{
    enum { BYTES = PART * BITS / 8 };
    uint8_t *data = to.data + to.lane * BYTES;
    int left = to.there ? to.dim * BITS / 8 - to.lane * BYTES : 0;
    if (vector_is_whole<PART>(to.dim)) {
        if (left > 0 && BYTES == 2)
            *(uint16_t *)data = (uint16_t)codes[0];
        else if (left > 0)
            words_store<(PART * BITS + 31) / 32>(data, codes);
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
template <int BITS, int PART, class Encode>
DEVICE void kv_put_codes(const struct kv_target &to, const float (&x)[PART], Encode encode)
{
    uint32_t codes[(PART * BITS + 31) / 32] = {};
#pragma unroll
    for (int i = 0; i < PART; i++)
        codes[i * BITS / 32] |= (uint32_t)encode(x[i]) << i * BITS % 32;
    kv_put<PART, BITS>(to, codes);
}

// The largest magnitude; NaN is ignored.
template <int PART> DEVICE float magnitude_max(const float (&x)[PART])
{
    float max = 0;
#pragma unroll
    for (int i = 0; i < PART; i++)
        max = fmaxf(max, fabsf(x[i]));
    return max;
}

template <int PART> DEVICE float vector_scale(const struct kv_target &to, const float (&x)[PART], float code_max)
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

template <int PART> DEVICE void kv_store_fp8_token(const struct kv_target &to, const float (&x)[PART])
{
    float scale = vector_scale(to, x, 448);
    kv_put_scale(to, scale);
    kv_put_codes<8>(to, x, [=](float value) { return f32_to_e4m3(value / scale); });
}

template <int PART> DEVICE void kv_store_int8_token(const struct kv_target &to, const float (&x)[PART])
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
template <int PART> DEVICE void rotate(const struct kv_target &to, float (&x)[PART])
{
    int first = to.lane * PART;
    uint64_t signs = kv_rotation_signs(first / 64) >> first % 64;
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] = __uint_as_float(__float_as_uint(bounded(x[i])) ^ (uint32_t)(signs >> i) << 31);
    vector_hadamard(to.lane, to.dim, x);
}

template <int PART> DEVICE void kv_store_int4_token(const struct kv_target &to, float (&x)[PART])
{
    rotate(to, x);
    float least = 0, most = 0; // the range includes zero
#pragma unroll
    for (int i = 0; i < PART; i++) {
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

enum { NVFP4_BLOCK = 16 };

// A block's scale, and the factor that divides values by it and by the layer's scale.
struct nvfp4_scale {
    int code;
    float value, inverse;
};

// E4M3 without sign and NaN; in the middle of an f16 it is 2^-8 of itself.
DEVICE struct nvfp4_scale nvfp4_scale_of(int code, float layer_scale)
{
    float small;
    asm("cvt.f32.f16 %0, %1;" : "=f"(small) : "h"((uint16_t)(code << 7)));
    float value = small * 0x1p8f, step = __fmul_rn(value, layer_scale);
    return { code, value, step > 0 ? 1 / step : 0 };
}

// The nearest E4M3 code of a scale, which is neither negative nor NaN.
DEVICE int nvfp4_code(float scale) { return minifloat_round(f32_bits(scale), 0x43E00000 /* 448 */, 3, 7); }

// Rounds to the nearest E2M1 value, ties to the even code, as f32_to_e2m1: adding an f32 whose unit in the last place
// is the distance between two E2M1 values rounds to it. From 1 on that distance is half of the power of two below.
DEVICE float round_e2m1(float magnitude)
{
    float bounded = fminf(magnitude, 6);
    float power = __uint_as_float(__float_as_uint(fmaxf(bounded, 1)) & 0x7F800000u);
    float grid = power * 0x1.8p22f;
    return __fsub_rn(__fadd_rn(bounded, grid), grid);
}

// f32_to_e2m1 in fewer operations: if that f32 is an even number of units larger, the last bits of the sum are the
// code.
DEVICE uint32_t e2m1_code(float value)
{
    float bounded = fminf(fabsf(value), 6);
    float grid = bounded < 2 ? 0x1.8p22f : bounded < 4 ? 0x1.8p23f + 2 : 0x1.8p24f + 8;
    uint32_t code = (__float_as_uint(__fadd_rn(bounded, grid)) & 7) | (__float_as_uint(value) >> 28 & 8);
    return isnan(value) ? 0 : code;
}

// The sums of squared errors under several scales at once, so that their shuffles overlap.
template <int COUNT, int PART>
DEVICE void nvfp4_errors(const float (&x)[PART], const struct nvfp4_scale (&scales)[COUNT], float layer_scale,
                         float (&errors)[COUNT])
{
    float squares[COUNT][PART];
#pragma unroll
    for (int i = 0; i < COUNT * PART; i++) {
        const struct nvfp4_scale &scale = scales[i / PART];
        float magnitude = fabsf(x[i % PART]);
        float value = __fmul_rn(round_e2m1(__fmul_rn(magnitude, scale.inverse)), scale.value);
        float error = __fsub_rn(magnitude, __fmul_rn(value, layer_scale));
        squares[i / PART][i % PART] = __fmul_rn(error, error);
    }
#pragma unroll
    for (int half = NVFP4_BLOCK / 2; half; half /= 2) // across lanes, then within
#pragma unroll
        for (int i = 0; i < COUNT * PART; i++) {
            float &sum = squares[i / PART][i % PART];
            if (half >= PART)
                sum = __fadd_rn(sum, __shfl_xor_sync(WARP_ALL, sum, half / PART));
            else if (i % PART < half)
                sum = __fadd_rn(sum, squares[i / PART][i % PART + half]);
        }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        errors[i] = squares[i][0];
}

// The value of lane `lane` of LANES neighbours.
template <int LANES> DEVICE struct nvfp4_scale nvfp4_scale_from(const struct nvfp4_scale &own, int lane)
{
    return { __shfl_sync(WARP_ALL, own.code, lane, LANES), __shfl_sync(WARP_ALL, own.value, lane, LANES),
             __shfl_sync(WARP_ALL, own.inverse, lane, LANES) };
}

// Scale candidates from `index` on (`second`, if there is one, stands for all but the first), which LANES neighbouring
// lanes compute together, some each.
template <int LANES, int COUNT>
DEVICE void nvfp4_scales(const struct kv_target &to, int first, int second, int index,
                         struct nvfp4_scale (&scales)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i += LANES) {
        int own_index = index + i + to.lane % LANES;
        int code = second >= 0 && own_index ? second : kv_scale_tried(first, own_index);
        const struct nvfp4_scale own = nvfp4_scale_of(code, to.layer_scale);
#pragma unroll
        for (int j = 0; j < LANES && i + j < COUNT; j++)
            scales[i + j] = LANES == 1 ? own : nvfp4_scale_from<LANES>(own, j);
    }
}

// The first scale, or a further one with less error. Lanes that have a whole block try one after the other, which takes
// fewer registers.
template <int PART>
DEVICE struct nvfp4_scale nvfp4_best(const struct kv_target &to, const float (&x)[PART], bool four_over_six)
{
    enum { LANES = NVFP4_BLOCK / PART, AT_ONCE = LANES > 1 ? (int)KV_SCALES_TRIED : 1 };
    float max = lanes_max(magnitude_max(x), LANES);
    int first = nvfp4_code(max / 6 / to.layer_scale);
    if (!four_over_six && !to.search)
        return nvfp4_scale_of(first, to.layer_scale);
    int second = four_over_six ? nvfp4_code(max / 4 / to.layer_scale) : -1;
    struct nvfp4_scale best = {};
    float least = 0;
#pragma unroll 1
    for (int i = 0; i < (four_over_six ? 2 : (int)KV_SCALES_TRIED); i += AT_ONCE) {
        struct nvfp4_scale scales[AT_ONCE];
        float errors[AT_ONCE];
        nvfp4_scales<LANES>(to, first, second, i, scales);
        nvfp4_errors(x, scales, to.layer_scale, errors);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j == 0 || errors[j] < least) {
                best = scales[j];
                least = errors[j];
            }
    }
    return best;
}

template <int PART> DEVICE void kv_store_nvfp4(const struct kv_target &to, const float (&x)[PART], bool four_over_six)
{
    const struct nvfp4_scale scale = nvfp4_best(to, x, four_over_six);
    kv_put_codes<4>(to, x, [=](float value) { return e2m1_code(value * scale.inverse); });
    int first = to.lane * PART;
    if (to.there && first < to.dim && first % NVFP4_BLOCK == 0)
        to.scale[first / NVFP4_BLOCK] = (uint8_t)scale.code;
}

// ---- all formats ----

// Called by all lanes of the warp, with the same format.
template <int PART> DEVICE void kv_store(int dtype, const struct kv_target &to, float (&x)[PART])
{
    float layer_scale = to.layer_scale;
    switch (dtype) {
    case DTYPE_F32: return kv_put_codes<32>(to, x, [](float value) { return __float_as_uint(value); });
    case DTYPE_F16: return kv_put_codes<16>(to, x, [](float value) { return f32_to_f16(value); });
    case DTYPE_BF16: return kv_put_codes<16>(to, x, [](float value) { return f32_to_bf16(value); });
    case DTYPE_FP8_E4M3: return kv_put_codes<8>(to, x, [=](float value) { return f32_to_e4m3(value / layer_scale); });
    case DTYPE_FP8_E5M2: return kv_put_codes<8>(to, x, [=](float value) { return f32_to_e5m2(value / layer_scale); });
    case DTYPE_INT8_TOKEN: return kv_store_int8_token(to, x);
    case DTYPE_FP8_TOKEN: return kv_store_fp8_token(to, x);
    case DTYPE_INT4_TOKEN: return kv_store_int4_token(to, x);
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: return kv_store_nvfp4(to, x, dtype == DTYPE_NVFP4_4OVER6);
    }
}

#endif
