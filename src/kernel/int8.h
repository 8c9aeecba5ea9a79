// SPDX-License-Identifier: Apache-2.0
// kernel/int8.h: dynamic int8 quantisation of activations (as Q8_0), the definition. Kernels that multiply
// block-quantised weights in integers first round each run of 32 activations to 127ths of its largest magnitude; the
// integer dot products are then exact, and blocks are summed in f32. A NaN or an infinity among the 32 makes their
// scale NaN or infinite.
#ifndef KERNEL_INT8_H
#define KERNEL_INT8_H

#include "kernel/minifloat.h"

enum { INT8_BLOCK = 32, INT8_LARGEST = 127 };
enum { INT8_LEAST = 0x0D800000 }; // bits of 2^-100: smaller blocks are zero, since their inverse might be infinite

// Bits of the largest of 32 magnitudes, compared as integers, so that NaN is the largest of all.
static inline int32_t int8_largest(const float *x)
{
    int32_t largest = 0;
    for (int i = 0; i < INT8_BLOCK; i++) {
        int32_t magnitude = f32_bits(x[i]) & F32_MAGNITUDE;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

// Rounds 32 values, ties to even; value i is about codes[i] * the scale, which is returned.
static inline float int8_round(const float *restrict x, int8_t *restrict codes)
{
    int32_t largest = int8_largest(x);
    float limit = f32_from_bits(largest), inverse = largest < INT8_LEAST ? 0 : INT8_LARGEST / limit;
    for (int i = 0; i < INT8_BLOCK; i++) // adding 1.5 * 2^23 rounds: the integer is in the low bits
        codes[i] = (int8_t)f32_bits(x[i] * inverse + 0x1.8p23f);
    return largest < INT8_LEAST ? 0 : limit * (1.0f / INT8_LARGEST);
}

#endif
