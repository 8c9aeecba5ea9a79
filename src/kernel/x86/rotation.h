// SPDX-License-Identifier: Apache-2.0
// kernel/x86/rotation.h: the rotation of int4_per_token_head, y = H s x, and its transpose s H y, with the bits of the
// reference (kernel/ref/kv_codec.c): the same values are added in the same stages.
#ifndef KERNEL_X86_ROTATION_H
#define KERNEL_X86_ROTATION_H

#include "kernel/ref/kv_codec.h"
#include "kernel/x86/vector.h"

#if defined(__AVX512F__)
ALWAYS_INLINE vec flip_lanes(vec x, uint32_t lanes)
{
    ivec bits = vec_bits(x);
    return vec_from_bits(_mm512_mask_xor_epi32(bits, (__mmask16)lanes, bits, ivec_set(INT32_MIN)));
}

// One stage among the lanes of a vector: each takes the sum with, or the difference from, the lane `distance` away.
#define STAGE(x, swapped, lanes) ((swapped) + flip_lanes(x, lanes))
ALWAYS_INLINE vec mix_lanes(vec x)
{
    x = STAGE(x, _mm512_permute_ps(x, 0xB1), 0xAAAA);
    x = STAGE(x, _mm512_permute_ps(x, 0x4E), 0xCCCC);
    x = STAGE(x, _mm512_shuffle_f32x4(x, x, 0xB1), 0xF0F0);
    return STAGE(x, _mm512_shuffle_f32x4(x, x, 0x4E), 0xFF00);
}
#else
ALWAYS_INLINE vec flip_lanes(vec x, uint32_t lanes)
{
    ivec lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    ivec chosen = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)lanes), lane), lane);
    return vec_from_bits(ivec_xor(vec_bits(x), ivec_left(chosen, 31)));
}

#define STAGE(x, swapped, lanes) ((swapped) + flip_lanes(x, lanes))
ALWAYS_INLINE vec mix_lanes(vec x)
{
    x = STAGE(x, _mm256_permute_ps(x, 0xB1), 0xAA);
    x = STAGE(x, _mm256_permute_ps(x, 0x4E), 0xCC);
    return STAGE(x, _mm256_permute2f128_ps(x, x, 0x01), 0xF0);
}
#endif
#undef STAGE

static void flip_signs(float *x, int dim)
{
    for (int i = 0; i < dim; i += LANES) {
        uint64_t signs = kv_rotation_signs(i / 64) >> (i % 64);
        vec_store(x + i, flip_lanes(vec_load(x + i), (uint32_t)(signs & ((1u << LANES) - 1))));
    }
}

static void hadamard(float *x, int dim)
{
    for (int i = 0; i < dim; i += LANES)
        vec_store(x + i, mix_lanes(vec_load(x + i)));
    for (int distance = LANES; distance < dim; distance *= 2)
        for (int i = 0; i < dim; i += LANES) {
            if (i & distance)
                continue;
            vec a = vec_load(x + i), b = vec_load(x + i + distance);
            vec_store(x + i, a + b);
            vec_store(x + i + distance, a - b);
        }
}

static inline void rotate(float *x, int dim)
{
    flip_signs(x, dim);
    hadamard(x, dim);
}

static inline void rotate_back(float *x, int dim)
{
    hadamard(x, dim);
    flip_signs(x, dim);
}

#endif
