// SPDX-License-Identifier: Apache-2.0
// kernel/minifloat.h: conversions between f32 and f16, bf16, E4M3, E5M2, E2M1, E8M0, one value at a time, for C and
// CUDA.
//   (1) encoding rounds to nearest, ties to the even code (the rounding mode is the default one)
//   (2) past the largest finite value f16 and bf16 become infinite, as IEEE 754 says; E4M3, E5M2 and E2M1
//       saturate, infinity included
//   (3) NaN stays NaN and keeps its sign; E2M1 has no NaN and stores 0
//   (4) nothing branches, so that loops vectorise (E2M1, all sixteen values, is a table: faster still), and no result
//       rests on arithmetic with subnormal f32, which would be slow and at the mercy of flush-to-zero
#ifndef KERNEL_MINIFLOAT_H
#define KERNEL_MINIFLOAT_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define MINIFLOAT static inline __host__ __device__
#else
#define MINIFLOAT static inline
#endif

enum { F32_MANTISSA = 23, F32_BIAS = 127, F32_INFINITY = 0x7F800000, F32_MAGNITUDE = 0x7FFFFFFF };

// Magnitudes are held as signed integers: they compare as the values do, and vector units compare those best.
MINIFLOAT int32_t f32_bits(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

MINIFLOAT float f32_from_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A choice by masks: where a `?:` leaves one side unused, compilers skip its arithmetic with a branch.
MINIFLOAT int32_t minifloat_choose(int condition, int32_t yes, int32_t no)
{
    return no ^ ((yes ^ no) & -(int32_t)condition);
}

// `sign` is an integer whose bit `bit` is the sign.
MINIFLOAT float minifloat_signed(int32_t magnitude, uint32_t sign, int bit)
{
    return f32_from_bits((int32_t)((uint32_t)magnitude | sign >> bit << 31));
}

// Converts an unsigned code with this many mantissa bits and this bias to f32 bits; codes of infinity and NaN are
// treated as numbers.
MINIFLOAT int32_t minifloat_expand(int32_t code, int mantissa, int bias)
{
    int32_t shifted = code << (F32_MANTISSA - mantissa);
    int32_t least_normal = (F32_BIAS + 1 - bias) << F32_MANTISSA;
    int32_t subnormal = f32_bits(f32_from_bits(shifted + least_normal) - f32_from_bits(least_normal));
    int32_t normal = shifted + ((F32_BIAS - bias) << F32_MANTISSA);
    return minifloat_choose(shifted < 1 << F32_MANTISSA, subnormal, normal);
}

// Rounds the bits of a positive f32, clamped to `largest`, to such a code. The caller handles NaN.
MINIFLOAT int32_t minifloat_round(int32_t bits, int32_t largest, int mantissa, int bias)
{
    int drop = F32_MANTISSA - mantissa;
    bits = bits < largest ? bits : largest;
    // Subnormals are equally spaced. Adding an f32 whose ulp is that spacing rounds to them.
    int32_t grid = (F32_BIAS + 1 - bias + drop) << F32_MANTISSA;
    int32_t subnormal = f32_bits(f32_from_bits(bits) + f32_from_bits(grid)) - grid;
    int32_t rounded = bits + (1 << (drop - 1)) - 1 + (bits >> drop & 1);
    int32_t normal = (rounded >> drop) - ((F32_BIAS - bias) << mantissa);
    return minifloat_choose(bits < (F32_BIAS + 1 - bias) << F32_MANTISSA, subnormal, normal);
}

MINIFLOAT float f16_to_f32(uint16_t code)
{
    int32_t magnitude = code & 0x7FFF;
    int32_t bits = minifloat_expand(magnitude, 10, 15);
    return minifloat_signed(magnitude >= 0x7C00 ? bits | F32_INFINITY : bits, code, 15);
}

MINIFLOAT uint16_t f32_to_f16(float value)
{
    int32_t bits = f32_bits(value), magnitude = bits & F32_MAGNITUDE;
    int32_t code = minifloat_round(magnitude, 0x47800000 /* 65536, infinity's place */, 10, 15);
    return (uint16_t)(minifloat_choose(magnitude > F32_INFINITY, 0x7E00, code) | (bits >> 16 & 0x8000));
}

MINIFLOAT float bf16_to_f32(uint16_t code) { return f32_from_bits((int32_t)((uint32_t)code << 16)); }

MINIFLOAT uint16_t f32_to_bf16(float value)
{
    int32_t bits = f32_bits(value), magnitude = bits & F32_MAGNITUDE;
    int32_t finite = magnitude < F32_INFINITY ? magnitude : F32_INFINITY;
    int32_t code = (finite + 0x7FFF + (finite >> 16 & 1)) >> 16;
    return (uint16_t)(minifloat_choose(magnitude > F32_INFINITY, 0x7FC0, code) | (bits >> 16 & 0x8000));
}

MINIFLOAT float e4m3_to_f32(uint8_t code)
{
    int32_t magnitude = code & 0x7F;
    int32_t bits = minifloat_expand(magnitude, 3, 7);
    return minifloat_signed(magnitude == 0x7F ? bits | F32_INFINITY : bits, code, 7);
}

MINIFLOAT uint8_t f32_to_e4m3(float value)
{
    int32_t bits = f32_bits(value), magnitude = bits & F32_MAGNITUDE;
    int32_t code = minifloat_round(magnitude, 0x43E00000 /* 448 */, 3, 7);
    return (uint8_t)(minifloat_choose(magnitude > F32_INFINITY, 0x7F, code) | (bits >> 24 & 0x80));
}

MINIFLOAT float e5m2_to_f32(uint8_t code) { return f16_to_f32((uint16_t)(code << 8)); }

MINIFLOAT uint8_t f32_to_e5m2(float value)
{
    int32_t bits = f32_bits(value), magnitude = bits & F32_MAGNITUDE;
    int32_t code = minifloat_round(magnitude, 0x47600000 /* 57344 */, 2, 15);
    return (uint8_t)(minifloat_choose(magnitude > F32_INFINITY, 0x7F, code) | (bits >> 24 & 0x80));
}

// Only the low four bits of `code` count.
MINIFLOAT float e2m1_to_f32(uint8_t code)
{
    static const float values[16] = { 0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f };
    return values[code & 15];
}

MINIFLOAT uint8_t f32_to_e2m1(float value)
{
    int32_t bits = f32_bits(value), magnitude = bits & F32_MAGNITUDE;
    int32_t code = minifloat_round(magnitude, 0x40C00000 /* 6 */, 1, 1);
    return (uint8_t)minifloat_choose(magnitude > F32_INFINITY, 0, code | (bits >> 28 & 8));
}

// A power of two, 2^-127 to 2^127; 255 is NaN.
MINIFLOAT float e8m0_to_f32(uint8_t code)
{
    int32_t normal = code == 255 ? 0x7FC00000 : code << F32_MANTISSA;
    return f32_from_bits(code == 0 ? 0x00400000 : normal);
}

#endif
