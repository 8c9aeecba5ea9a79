// SPDX-License-Identifier: Apache-2.0
// kernel/x86/transpose.h: LANES vectors of LANES values, turned around.
#ifndef KERNEL_X86_TRANSPOSE_H
#define KERNEL_X86_TRANSPOSE_H

#include "kernel/x86/vector.h"

#if defined(__AVX512F__)
// Squares of 4 x 4 within lanes of 128 bits first, then the lanes.
ALWAYS_INLINE void transpose(vec rows[LANES])
{
    vec part[LANES];
    for (int i = 0; i < LANES; i += 4) {
        vec a = _mm512_unpacklo_ps(rows[i], rows[i + 1]), b = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
        vec c = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]), d = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
        part[i] = _mm512_shuffle_ps(a, c, 0x44);
        part[i + 1] = _mm512_shuffle_ps(a, c, 0xEE);
        part[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        part[i + 3] = _mm512_shuffle_ps(b, d, 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        vec even_low = _mm512_shuffle_f32x4(part[i], part[i + 4], 0x88);
        vec odd_low = _mm512_shuffle_f32x4(part[i], part[i + 4], 0xDD);
        vec even_high = _mm512_shuffle_f32x4(part[i + 8], part[i + 12], 0x88);
        vec odd_high = _mm512_shuffle_f32x4(part[i + 8], part[i + 12], 0xDD);
        rows[i] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
        rows[i + 4] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        rows[i + 8] = _mm512_shuffle_f32x4(even_low, even_high, 0xDD);
        rows[i + 12] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xDD);
    }
}
#else
ALWAYS_INLINE void transpose(vec rows[LANES])
{
    vec part[LANES];
    for (int i = 0; i < LANES; i += 4) {
        vec a = _mm256_unpacklo_ps(rows[i], rows[i + 1]), b = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        vec c = _mm256_unpacklo_ps(rows[i + 2], rows[i + 3]), d = _mm256_unpackhi_ps(rows[i + 2], rows[i + 3]);
        part[i] = _mm256_shuffle_ps(a, c, 0x44);
        part[i + 1] = _mm256_shuffle_ps(a, c, 0xEE);
        part[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        part[i + 3] = _mm256_shuffle_ps(b, d, 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm256_permute2f128_ps(part[i], part[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(part[i], part[i + 4], 0x31);
    }
}
#endif

#endif
