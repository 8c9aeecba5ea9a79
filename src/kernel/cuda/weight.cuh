// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/weight.cuh: dequantisation of weights one value at a time, for kernels that take any shape: weight_value
// gives value i of a block (kernel/blocks.h). Operation by operation it is the reference's arithmetic
// (kernel/ref/weight.c), so the bits are the same.
#ifndef KERNEL_CUDA_WEIGHT_CUH
#define KERNEL_CUDA_WEIGHT_CUH

#include "kernel/blocks.h"
#include "kernel/cuda/common.cuh"

DEVICE float read_f16(const uint8_t bytes[2])
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(read_u16(bytes)));
    return value;
}

// 4-bit code i of `count`: code i and code i + count / 2 are in one byte, the latter in the high nibble.
DEVICE int nibble_of(const uint8_t *codes, int i, int count)
{
    return codes[i % (count / 2)] >> i / (count / 2) * 4 & 15;
}

// 5-bit code i of 32: four bits as above, the fifth in a bit mask.
DEVICE int five_bits_of(const uint8_t *codes, const uint8_t *high, int i)
{
    return nibble_of(codes, i, 32) | (high[i / 8] >> i % 8 & 1) << 4;
}

// Q2_K and Q3_K: 32 bytes hold 128 values of two bits; 16 values sit in 16 bytes at one shift.
DEVICE int two_bits_of(const uint8_t *codes, int i) { return codes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3; }

// Not contracted to one fused multiply-add, which would round once instead of twice.
DEVICE float scaled_plus(float scale, int code, float offset)
{
    return __fadd_rn(__fmul_rn(scale, (float)code), offset);
}

DEVICE float e2m1_value(int code) { return minifloat_signed(minifloat_expand(code & 7, 1, 1), (uint32_t)code, 3); }

static __device__ const float iq4_levels[16] = { IQ4_LEVELS };

DEVICE float weight_value(const struct F32 *block, int)
{
    float value;
    memcpy(&value, block->value, sizeof value);
    return value;
}

DEVICE float weight_value(const struct F16 *block, int) { return read_f16(block->value); }
DEVICE float weight_value(const struct BF16 *block, int) { return bf16_to_f32(read_u16(block->value)); }

DEVICE float weight_value(const struct Q4_0 *block, int i)
{
    return read_f16(block->scale) * (float)(nibble_of(block->codes, i, 32) - 8);
}

DEVICE float weight_value(const struct Q4_1 *block, int i)
{
    return scaled_plus(read_f16(block->scale), nibble_of(block->codes, i, 32), read_f16(block->min));
}

DEVICE float weight_value(const struct Q5_0 *block, int i)
{
    return read_f16(block->scale) * (float)(five_bits_of(block->codes, block->high, i) - 16);
}

DEVICE float weight_value(const struct Q5_1 *block, int i)
{
    return scaled_plus(read_f16(block->scale), five_bits_of(block->codes, block->high, i), read_f16(block->min));
}

DEVICE float weight_value(const struct Q8_0 *block, int i) { return read_f16(block->scale) * (float)block->codes[i]; }

DEVICE float weight_value(const struct Q2_K *block, int i)
{
    int scales = block->scales[i / 16];
    return scaled_plus(read_f16(block->scale) * (float)(scales & 15), two_bits_of(block->codes, i),
                       -(read_f16(block->min) * (float)(scales >> 4)));
}

DEVICE float weight_value(const struct Q3_K *block, int i)
{
    int code = two_bits_of(block->codes, i) + (block->high[i % 32] >> i / 32 & 1) * 4 - 4;
    return read_f16(block->scale) * (float)q3_scale(block->scales, i / 16) * (float)code;
}

DEVICE float weight_value(const struct Q4_K *block, int i)
{
    int code = block->codes[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
    return scaled_plus(read_f16(block->scale) * (float)q4_scale(block->scales, i / 32), code,
                       -(read_f16(block->min) * (float)q4_min(block->scales, i / 32)));
}

DEVICE float weight_value(const struct Q5_K *block, int i)
{
    int code = block->codes[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
    code |= (block->high[i % 32] >> i / 32 & 1) << 4;
    return scaled_plus(read_f16(block->scale) * (float)q4_scale(block->scales, i / 32), code,
                       -(read_f16(block->min) * (float)q4_min(block->scales, i / 32)));
}

// Each half of the block: 64 bytes of low nibbles and 32 bytes of high pairs, for four runs of 32 values.
DEVICE float weight_value(const struct Q6_K *block, int i)
{
    int half = i / 128, run = i % 128 / 32;
    int code = block->codes[half * 64 + run % 2 * 32 + i % 32] >> run / 2 * 4 & 15;
    code |= (block->high[half * 32 + i % 32] >> run * 2 & 3) << 4;
    return read_f16(block->scale) * (float)block->scales[i / 16] * (float)(code - 32);
}

DEVICE float weight_value(const struct IQ4_NL *block, int i)
{
    return read_f16(block->scale) * iq4_levels[nibble_of(block->codes, i, 32)];
}

DEVICE float weight_value(const struct IQ4_XS *block, int i)
{
    int s = i / 32;
    return read_f16(block->scale) * (float)iq4_xs_scale(block, s)
        * iq4_levels[nibble_of(block->codes + s * 16, i % 32, 32)];
}

DEVICE float weight_value(const struct MXFP4_GGUF *block, int i)
{
    return e8m0_to_f32(block->scale) * e2m1_value(nibble_of(block->codes, i, 32));
}

DEVICE float weight_value(const struct NVFP4_GGUF *block, int i)
{
    float scale = f32_from_bits(minifloat_expand(nvfp4_scale(block, i / 16), 3, 7));
    return scale * e2m1_value(nibble_of(block->codes + i / 16 * 8, i % 16, 16));
}

DEVICE float weight_value(const struct FP8_32 *block, int i)
{
    float scale;
    memcpy(&scale, block->scale, sizeof scale);
    return scale * e4m3_to_f32(block->codes[i]);
}

#endif
