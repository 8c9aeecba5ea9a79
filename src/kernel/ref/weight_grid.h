// SPDX-License-Identifier: Apache-2.0
// kernel/ref/weight_grid.h: rounding to E2M1, E4M3 and int8 values as f32, in loops that vectorise, and the candidate
// scales of the searches.
#ifndef KERNEL_REF_WEIGHT_GRID_H
#define KERNEL_REF_WEIGHT_GRID_H

#include "kernel/minifloat.h"

enum { NVFP4_BLOCK = 16, MXFP4_BLOCK = 32 }; // values that share a scale

#define E2M1_MAX 6.0f
#define E4M3_MAX 448.0f
#define INT8_MAX_F 127.0f
enum { E4M3_CODE_MAX = 0x7E, E8M0_CODE_MAX = 0xFE };

// E4M3 code steps around the scale that maps the largest value to 6. Without importance, no scale more than 2 below or
// 6 above is ever the best.
enum { NVFP4_BELOW = -4, NVFP4_ABOVE = 7 };

// MXFP4's candidate scales are the powers of two that map the largest value into [2, 4), [4, 8) or [8, 16), where it is
// clipped above 6. Returns the middle one's E8M0 code, clamped so that both neighbours exist.
static inline int32_t mxfp4_middle(int32_t bits)
{
    enum { CODE_OF_FOUR = 2, CODE_MIN = 2, CODE_MAX = 252 };
    int32_t code = (bits >> F32_MANTISSA) - CODE_OF_FOUR;
    return code < CODE_MIN ? CODE_MIN : code > CODE_MAX ? CODE_MAX : code;
}

// To the nearest of 0 0.5 1 1.5 2 3 4 6, ties to the even code, as f32_to_e2m1 does it.
static inline float round_e2m1(float magnitude)
{
    float step = magnitude < 2 ? 0.5f : magnitude < 4 ? 1.0f : 2.0f;
    float grid = step * 0x1.8p23f; // an f32 whose last place is the step, when added, rounds to it
    float rounded = magnitude + grid - grid;
    return rounded < E2M1_MAX ? rounded : E2M1_MAX;
}

// To the nearest E4M3, ties to the even code, as f32_to_e4m3 does it.
static inline float round_e4m3(float magnitude)
{
    enum { LEAST_NORMAL = (F32_BIAS - 6) << F32_MANTISSA, TO_LAST_PLACE = 20 << F32_MANTISSA };
    int32_t binade = f32_bits(magnitude) & F32_INFINITY;
    binade = binade > LEAST_NORMAL ? binade : LEAST_NORMAL;
    float grid = f32_from_bits((binade + TO_LAST_PLACE) | 1 << (F32_MANTISSA - 1));
    float rounded = magnitude + grid - grid;
    return rounded < E4M3_MAX ? rounded : E4M3_MAX;
}

static inline float round_int8(float magnitude)
{
    float rounded = magnitude + 0x1.8p23f - 0x1.8p23f;
    return rounded < INT8_MAX_F ? rounded : INT8_MAX_F;
}

#endif
