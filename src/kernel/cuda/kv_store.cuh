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

// Signs and Hadamard matrix. Neighbours are combined first, then those two apart, and so on: within lanes, then across.
DEVICE void rotate(const struct kv_target &to, float x[VECTOR_PART])
{
    int first = to.lane * VECTOR_PART;
    uint64_t signs = kv_rotation_signs(first / 64) >> first % 64;
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        x[i] = __uint_as_float(__float_as_uint(bounded(x[i])) ^ (uint32_t)(signs >> i) << 31);
#pragma unroll
    for (int stride = 1; stride < VECTOR_PART; stride *= 2) {
        if (stride >= to.dim)
            break;
#pragma unroll
        for (int i = 0; i < VECTOR_PART; i++)
            if (!(i & stride)) {
                float a = x[i], b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
    }
    for (int stride = 1; stride < to.lanes; stride *= 2)
#pragma unroll
        for (int i = 0; i < VECTOR_PART; i++) {
            float other = __shfl_xor_sync(WARP_ALL, x[i], stride);
            x[i] = to.lane & stride ? other - x[i] : x[i] + other;
        }
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

// Sixteen values as E2M1 codes under one E4M3 scale.
struct nvfp4_block {
    uint32_t codes[2];
    uint8_t scale;
};

// The block whose largest magnitude `max` comes to lie on `level`, as near as the scale can be written.
DEVICE struct nvfp4_block nvfp4_fit(const float x[VECTOR_PART], float max, float level, float layer_scale)
{
    struct nvfp4_block block = { { 0, 0 }, f32_to_e4m3(max / level / layer_scale) };
    float step = __fmul_rn(e4m3_to_f32(block.scale), layer_scale);
    float inverse = step > 0 ? 1 / step : 0;
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++)
        block.codes[i / 8] |= (uint32_t)f32_to_e2m1(x[i] * inverse) << i % 8 * 4;
    return block;
}

DEVICE float nvfp4_squared_error(const struct nvfp4_block &block, const float x[VECTOR_PART], float layer_scale)
{
    float scale = e4m3_to_f32(block.scale), sum = 0;
#pragma unroll
    for (int i = 0; i < VECTOR_PART; i++) {
        uint32_t code = block.codes[i / 8] >> i % 8 * 4 & 15;
        float value = minifloat_signed(minifloat_expand((int32_t)code & 7, 1, 1), code, 3);
        float error = __fsub_rn(x[i], __fmul_rn(__fmul_rn(value, scale), layer_scale));
        sum = __fadd_rn(sum, __fmul_rn(error, error));
    }
    return sum;
}

DEVICE void kv_store_nvfp4(const struct kv_target &to, const float x[VECTOR_PART], bool four_over_six)
{
    float max = magnitude_max(x);
    struct nvfp4_block block = nvfp4_fit(x, max, 6, to.layer_scale);
    if (four_over_six) {
        struct nvfp4_block four = nvfp4_fit(x, max, 4, to.layer_scale);
        if (nvfp4_squared_error(four, x, to.layer_scale) < nvfp4_squared_error(block, x, to.layer_scale))
            block = four;
    }
    kv_put<8>(to, block.codes);
    if (to.there && to.lane * VECTOR_PART < to.dim)
        to.scale[to.lane] = block.scale;
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
