// SPDX-License-Identifier: Apache-2.0
// kernel/x86/vector.h: the vector primitives that kernels are written in, for the widest vector that the source is
// compiled for: 16 lanes with AVX-512, 8 with AVX2 and FMA. Plain float arithmetic uses C operators. Intrinsics with
// the same name in both instruction sets are wrapped here, the others in vector_avx2.h and vector_avx512.h.
//   (1) the order of every sum is fixed by the number of lanes
//   (2) NaN operands give NaN
#ifndef KERNEL_X86_VECTOR_H
#define KERNEL_X86_VECTOR_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// MM(add_ps) is the intrinsic for a whole vector, MM_BITS(and) that without a type; HALF is for 16-bit values, one a
// lane.
#if defined(__AVX512F__)
enum { LANES = 16 };
typedef __m512 vec;
typedef __m512i ivec;
typedef __m256i halfvec;
#define MM(op) _mm512_##op
#define MM_BITS(op) _mm512_##op##_si512
#define HALF(op) _mm256_##op
#define HALF_BITS(op) _mm256_##op##_si256
#else
enum { LANES = 8 };
typedef __m256 vec;
typedef __m256i ivec;
typedef __m128i halfvec;
#define MM(op) _mm256_##op
#define MM_BITS(op) _mm256_##op##_si256
#define HALF(op) _mm_##op
#define HALF_BITS(op) _mm_##op##_si128
#endif

ALWAYS_INLINE vec vec_set(float x) { return MM(set1_ps)(x); }
ALWAYS_INLINE vec vec_load(const float *x) { return MM(loadu_ps)(x); }
ALWAYS_INLINE void vec_store(float *out, vec x) { MM(storeu_ps)(out, x); }
ALWAYS_INLINE vec vec_fma(vec a, vec b, vec c) { return MM(fmadd_ps)(a, b, c); }
ALWAYS_INLINE vec vec_add(vec a, vec b) { return MM(add_ps)(a, b); }
ALWAYS_INLINE vec vec_mul(vec a, vec b) { return MM(mul_ps)(a, b); }
ALWAYS_INLINE vec vec_max(vec a, vec b) { return MM(max_ps)(a, b); } // b if either is NaN
ALWAYS_INLINE vec vec_min(vec a, vec b) { return MM(min_ps)(a, b); }
ALWAYS_INLINE ivec vec_bits(vec x) { return MM_BITS(castps)(x); }
ALWAYS_INLINE ivec vec_to_int(vec x) { return MM(cvtps_epi32)(x); }
ALWAYS_INLINE ivec vec_truncate(vec x) { return MM(cvttps_epi32)(x); }
ALWAYS_INLINE vec vec_from_int(ivec x) { return MM(cvtepi32_ps)(x); }

ALWAYS_INLINE ivec ivec_load(const void *x) { return MM_BITS(loadu)(x); }
ALWAYS_INLINE void ivec_store(void *out, ivec x) { MM_BITS(storeu)(out, x); }
ALWAYS_INLINE ivec ivec_set(int32_t x) { return MM(set1_epi32)(x); }
// Broadcasts 8 bytes.
ALWAYS_INLINE ivec ivec_set64(const void *x) { return MM(broadcastq_epi64)(_mm_loadl_epi64(x)); }
ALWAYS_INLINE ivec ivec_add(ivec a, ivec b) { return MM(add_epi32)(a, b); }
ALWAYS_INLINE ivec ivec_sub(ivec a, ivec b) { return MM(sub_epi32)(a, b); }
ALWAYS_INLINE ivec ivec_and(ivec a, ivec b) { return MM_BITS (and)(a, b); }
ALWAYS_INLINE ivec ivec_or(ivec a, ivec b) { return MM_BITS(or)(a, b); }
ALWAYS_INLINE ivec ivec_xor(ivec a, ivec b) { return MM_BITS(xor)(a, b); }
ALWAYS_INLINE ivec ivec_min(ivec a, ivec b) { return MM(min_epi32)(a, b); }
ALWAYS_INLINE ivec ivec_max(ivec a, ivec b) { return MM(max_epi32)(a, b); }
ALWAYS_INLINE ivec ivec_left(ivec x, unsigned bits) { return MM(slli_epi32)(x, bits); }
ALWAYS_INLINE ivec ivec_right(ivec x, unsigned bits) { return MM(srli_epi32)(x, bits); }
ALWAYS_INLINE ivec ivec_left16(ivec x, unsigned bits) { return MM(slli_epi16)(x, bits); }
ALWAYS_INLINE ivec ivec_right16(ivec x, unsigned bits) { return MM(srai_epi16)(x, bits); } // arithmetic shift
ALWAYS_INLINE ivec ivec_sub8(ivec a, ivec b) { return MM(sub_epi8)(a, b); }
ALWAYS_INLINE ivec ivec_sub16(ivec a, ivec b) { return MM(sub_epi16)(a, b); }

ALWAYS_INLINE halfvec half_load(const void *x) { return HALF_BITS(loadu)(x); }
ALWAYS_INLINE void half_store(void *out, halfvec x) { HALF_BITS(storeu)(out, x); }
ALWAYS_INLINE halfvec half_set(int16_t x) { return HALF(set1_epi16)(x); }
ALWAYS_INLINE halfvec half_and(halfvec a, halfvec b) { return HALF_BITS (and)(a, b); }
ALWAYS_INLINE halfvec half_left(halfvec x, int bits) { return HALF(slli_epi16)(x, bits); }
ALWAYS_INLINE vec vec_from_f16(halfvec x) { return MM(cvtph_ps)(x); }
ALWAYS_INLINE halfvec vec_to_f16(vec x) { return MM(cvtps_ph)(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE ivec ivec_from_u16(halfvec x) { return MM(cvtepu16_epi32)(x); }

#if defined(__AVX512F__)
#include "kernel/x86/vector_avx512.h"
#else
#include "kernel/x86/vector_avx2.h"
#endif

ALWAYS_INLINE halfvec half_from_i8(const void *x) { return HALF(cvtepi8_epi16)(load_bytes(x)); }
ALWAYS_INLINE halfvec half_from_u8(const void *x) { return HALF(cvtepu8_epi16)(load_bytes(x)); }
ALWAYS_INLINE ivec ivec_from_i8(const void *x) { return MM(cvtepi8_epi32)(load_bytes(x)); }
ALWAYS_INLINE ivec ivec_from_u8(const void *x) { return MM(cvtepu8_epi32)(load_bytes(x)); }
ALWAYS_INLINE vec vec_from_bf16(halfvec x) { return vec_from_bits(ivec_left(ivec_from_u16(x), 16)); }

// Looks up each byte, 0 to 15, in a table of 16 bytes.
ALWAYS_INLINE ivec ivec_look_up8(ivec x, __m128i table) { return MM(shuffle_epi8)(ivec_set128(table), x); }

// Transposes a LANES x LANES matrix: 4 x 4 squares within 128 bits first, then the squares.
ALWAYS_INLINE void transpose(vec rows[LANES])
{
    vec part[LANES];
    for (int i = 0; i < LANES; i += 4) {
        vec a = MM(unpacklo_ps)(rows[i], rows[i + 1]), b = MM(unpackhi_ps)(rows[i], rows[i + 1]);
        vec c = MM(unpacklo_ps)(rows[i + 2], rows[i + 3]), d = MM(unpackhi_ps)(rows[i + 2], rows[i + 3]);
        part[i] = MM(shuffle_ps)(a, c, 0x44);
        part[i + 1] = MM(shuffle_ps)(a, c, 0xEE);
        part[i + 2] = MM(shuffle_ps)(b, d, 0x44);
        part[i + 3] = MM(shuffle_ps)(b, d, 0xEE);
    }
    transpose_squares(part, rows);
}

// Loads or stores the first `count` lanes, 1 to LANES.
ALWAYS_INLINE vec load_lanes(const float *x, int count)
{
    return count == LANES ? vec_load(x) : vec_load_part(x, count);
}

ALWAYS_INLINE void store_lanes(float *out, vec x, int count)
{
    if (count == LANES)
        vec_store(out, x);
    else
        vec_store_part(out, x, count);
}

ALWAYS_INLINE float vec_sum(vec x)
{
    __m256 eight = halves_sum(x);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// The largest lane. None may be NaN.
ALWAYS_INLINE float vec_largest(vec x)
{
    __m256 eight = halves_max(x);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

#endif
