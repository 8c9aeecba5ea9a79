// SPDX-License-Identifier: Apache-2.0
// kernel/int16.h: activations as 16-bit integers in two 8-bit planes, high and low. Integer dot products take 8-bit
// operands; with both planes of an activation they lose nothing to rounding that matters: each run of 32 activations is
// rounded to 16256ths of its largest magnitude, 128 times finer than int8 (kernel/int8.h), and what follows is exact
// until blocks are summed in f32. A NaN or an infinity among the 32 makes their scale one.
#ifndef KERNEL_INT16_H
#define KERNEL_INT16_H

#include "kernel/int8.h"

enum { INT16_SHIFT = 7, INT16_LARGEST = INT8_LARGEST << INT16_SHIFT };

// Rounds 32 values, ties to even; value i is about (high[i] * 2^INT16_SHIFT + low[i]) * the scale, which is returned.
static inline float int16_round(const float *restrict x, int8_t *restrict high, int8_t *restrict low)
{
    enum { HALF = 1 << (INT16_SHIFT - 1) };
    int32_t largest = int8_largest(x);
    float limit = f32_from_bits(largest), inverse = largest < INT8_LEAST ? 0 : INT16_LARGEST / limit;
    for (int i = 0; i < INT8_BLOCK; i++) {
        int32_t code = (int32_t)(int16_t)f32_bits(x[i] * inverse + 0x1.8p23f), top = (code + HALF) >> INT16_SHIFT;
        high[i] = (int8_t)top;
        low[i] = (int8_t)(code - top * (1 << INT16_SHIFT));
    }
    return largest < INT8_LEAST ? 0 : limit * (1.0f / INT16_LARGEST);
}

#endif
