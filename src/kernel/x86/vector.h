// SPDX-License-Identifier: Apache-2.0
// kernel/x86/vector.h: the widest vector of floats that the including file is compiled for, so that a kernel is written
// once: 16 lanes with AVX-512, 8 with AVX2 and FMA. Plain arithmetic is the compiler's; here is what has no operator.
//   (1) the order of every sum is fixed by the number of lanes
//   (2) where an operand is NaN, so is the result
#ifndef KERNEL_X86_VECTOR_H
#define KERNEL_X86_VECTOR_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define VECTOR_NAME(name) name##_avx512

enum { LANES = 16 };
typedef __m512 vec;
typedef __m512i ivec;
typedef __m256i halfvec; // as many 16-bit values as a vec has lanes

ALWAYS_INLINE vec vec_set(float x) { return _mm512_set1_ps(x); }
ALWAYS_INLINE vec vec_load(const float *x) { return _mm512_loadu_ps(x); }
ALWAYS_INLINE void vec_store(float *out, vec x) { _mm512_storeu_ps(out, x); }
ALWAYS_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
ALWAYS_INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
ALWAYS_INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
ALWAYS_INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); } // where one is NaN: b
ALWAYS_INLINE vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }
ALWAYS_INLINE vec vec_round(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE vec vec_abs(vec x) { return _mm512_abs_ps(x); }
ALWAYS_INLINE ivec vec_bits(vec x) { return _mm512_castps_si512(x); }
ALWAYS_INLINE vec vec_from_bits(ivec x) { return _mm512_castsi512_ps(x); }
ALWAYS_INLINE ivec vec_to_int(vec x) { return _mm512_cvtps_epi32(x); }
ALWAYS_INLINE ivec vec_truncate(vec x) { return _mm512_cvttps_epi32(x); }
ALWAYS_INLINE vec vec_from_int(ivec x) { return _mm512_cvtepi32_ps(x); }

// Lanes where a < b take yes, the others no. NaN is never less.
ALWAYS_INLINE vec vec_if_less(vec a, vec b, vec yes, vec no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

ALWAYS_INLINE ivec vec_choose_less(vec a, vec b, ivec yes, ivec no)
{
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

ALWAYS_INLINE bool vec_any_nan(vec x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }

// Lanes [first, end) of x, the others of `other`.
ALWAYS_INLINE vec vec_between(vec x, int first, int end, vec other)
{
    ivec lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 inside = _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(first), _MM_CMPINT_NLT)
        & _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(end), _MM_CMPINT_LT);
    return _mm512_mask_blend_ps(inside, other, x);
}

// The first `count` lanes; the others are 0 and no memory is read for them.
ALWAYS_INLINE vec vec_load_part(const float *x, int count)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), x);
}

ALWAYS_INLINE void vec_store_part(float *out, vec x, int count)
{
    _mm512_mask_storeu_ps(out, (__mmask16)((1u << count) - 1), x);
}

ALWAYS_INLINE ivec ivec_load(const void *x) { return _mm512_loadu_si512(x); }
ALWAYS_INLINE void ivec_store(void *out, ivec x) { _mm512_storeu_si512(out, x); }
ALWAYS_INLINE ivec ivec_set(int32_t x) { return _mm512_set1_epi32(x); }
// 8 bytes again and again.
ALWAYS_INLINE ivec ivec_set64(const void *x) { return _mm512_broadcastq_epi64(_mm_loadl_epi64(x)); }
ALWAYS_INLINE ivec ivec_add(ivec a, ivec b) { return _mm512_add_epi32(a, b); }
ALWAYS_INLINE ivec ivec_sub(ivec a, ivec b) { return _mm512_sub_epi32(a, b); }
ALWAYS_INLINE ivec ivec_and(ivec a, ivec b) { return _mm512_and_si512(a, b); }
ALWAYS_INLINE ivec ivec_or(ivec a, ivec b) { return _mm512_or_si512(a, b); }
ALWAYS_INLINE ivec ivec_xor(ivec a, ivec b) { return _mm512_xor_si512(a, b); }
// Each eight lanes in the order of the first eight of `order`.
ALWAYS_INLINE ivec ivec_reorder(ivec x, const int order[8])
{
    __m256i eight = _mm256_loadu_si256((const void *)order);
    ivec both = _mm512_inserti64x4(_mm512_castsi256_si512(eight), _mm256_add_epi32(eight, _mm256_set1_epi32(8)), 1);
    return _mm512_permutexvar_epi32(both, x);
}

ALWAYS_INLINE ivec ivec_min(ivec a, ivec b) { return _mm512_min_epi32(a, b); }
ALWAYS_INLINE ivec ivec_max(ivec a, ivec b) { return _mm512_max_epi32(a, b); }
ALWAYS_INLINE ivec ivec_left(ivec x, unsigned bits) { return _mm512_slli_epi32(x, bits); }
ALWAYS_INLINE ivec ivec_right(ivec x, unsigned bits) { return _mm512_srli_epi32(x, bits); }

// Of pairs of 16-bit integers: the products of each pair, added to its lane.
ALWAYS_INLINE ivec ivec_dot16(ivec sum, ivec a, ivec b) { return _mm512_dpwssd_epi32(sum, a, b); }
ALWAYS_INLINE ivec ivec_left16(ivec x, unsigned bits) { return _mm512_slli_epi16(x, bits); }
ALWAYS_INLINE ivec ivec_right16(ivec x, unsigned bits) { return _mm512_srai_epi16(x, bits); } // keeps the sign
ALWAYS_INLINE ivec ivec_sub8(ivec a, ivec b) { return _mm512_sub_epi8(a, b); }
ALWAYS_INLINE ivec ivec_sub16(ivec a, ivec b) { return _mm512_sub_epi16(a, b); }

// Each byte, 0 to 15, as the table's entry of that number.
ALWAYS_INLINE ivec ivec_look_up8(ivec x, __m128i table)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), x);
}

ALWAYS_INLINE ivec ivec_if_less(ivec a, ivec b, ivec yes, ivec no)
{
    return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), no, yes);
}

ALWAYS_INLINE halfvec half_load(const void *x) { return _mm256_loadu_si256(x); }
ALWAYS_INLINE void half_store(void *out, halfvec x) { _mm256_storeu_si256(out, x); }
ALWAYS_INLINE halfvec half_from_bytes(const void *x) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(x)); }
ALWAYS_INLINE halfvec half_set(int16_t x) { return _mm256_set1_epi16(x); }
ALWAYS_INLINE halfvec half_and(halfvec a, halfvec b) { return _mm256_and_si256(a, b); }
ALWAYS_INLINE halfvec half_left(halfvec x, int bits) { return _mm256_slli_epi16(x, bits); }
ALWAYS_INLINE vec vec_from_f16(halfvec x) { return _mm512_cvtph_ps(x); }
ALWAYS_INLINE halfvec vec_to_f16(vec x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE ivec ivec_from_u16(halfvec x) { return _mm512_cvtepu16_epi32(x); }
ALWAYS_INLINE ivec ivec_from_i8(const void *x) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(x)); }
ALWAYS_INLINE halfvec ivec_to_u16(ivec x) { return _mm512_cvtepi32_epi16(x); } // the low halves
ALWAYS_INLINE void ivec_store_u8(void *out, ivec x) { _mm_storeu_si128(out, _mm512_cvtepi32_epi8(x)); } // low bytes

// Codes of 0 to 15, two to a byte, the even ones low.
ALWAYS_INLINE void ivec_store_nibbles(void *out, ivec x)
{
    _mm_storel_epi64(out, _mm512_cvtepi64_epi8(_mm512_or_si512(x, _mm512_srli_epi64(x, 28))));
}

// The value of each E2M1 code.
ALWAYS_INLINE vec vec_from_e2m1(ivec codes)
{
    return _mm512_permutexvar_ps(codes,
                                 _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6));
}

// The even and the odd ones of two vectors' values.
ALWAYS_INLINE void vec_split(vec low, vec high, vec *even, vec *odd)
{
    ivec at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(low, at, high);
    *odd = _mm512_permutex2var_ps(low, _mm512_add_epi32(at, _mm512_set1_epi32(1)), high);
}

ALWAYS_INLINE __m256 high_half(vec x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }
ALWAYS_INLINE __m256 halves_sum(vec x) { return _mm256_add_ps(_mm512_castps512_ps256(x), high_half(x)); }
ALWAYS_INLINE __m256 halves_max(vec x) { return _mm256_max_ps(_mm512_castps512_ps256(x), high_half(x)); }
#else
#define VECTOR_NAME(name) name##_avx2

enum { LANES = 8 };
typedef __m256 vec;
typedef __m256i ivec;
typedef __m128i halfvec;

ALWAYS_INLINE vec vec_set(float x) { return _mm256_set1_ps(x); }
ALWAYS_INLINE vec vec_load(const float *x) { return _mm256_loadu_ps(x); }
ALWAYS_INLINE void vec_store(float *out, vec x) { _mm256_storeu_ps(out, x); }
ALWAYS_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
ALWAYS_INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
ALWAYS_INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
ALWAYS_INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
ALWAYS_INLINE vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }
ALWAYS_INLINE vec vec_round(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE vec vec_abs(vec x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
ALWAYS_INLINE ivec vec_bits(vec x) { return _mm256_castps_si256(x); }
ALWAYS_INLINE vec vec_from_bits(ivec x) { return _mm256_castsi256_ps(x); }
ALWAYS_INLINE ivec vec_to_int(vec x) { return _mm256_cvtps_epi32(x); }
ALWAYS_INLINE ivec vec_truncate(vec x) { return _mm256_cvttps_epi32(x); }
ALWAYS_INLINE vec vec_from_int(ivec x) { return _mm256_cvtepi32_ps(x); }

ALWAYS_INLINE vec vec_if_less(vec a, vec b, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

ALWAYS_INLINE ivec vec_choose_less(vec a, vec b, ivec yes, ivec no)
{
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)));
}

ALWAYS_INLINE bool vec_any_nan(vec x) { return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0; }

ALWAYS_INLINE vec vec_between(vec x, int first, int end, vec other)
{
    ivec lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    ivec outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                   _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(end - 1)));
    return _mm256_blendv_ps(x, other, _mm256_castsi256_ps(outside));
}

ALWAYS_INLINE ivec first_lanes(int count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

ALWAYS_INLINE vec vec_load_part(const float *x, int count) { return _mm256_maskload_ps(x, first_lanes(count)); }

ALWAYS_INLINE void vec_store_part(float *out, vec x, int count) { _mm256_maskstore_ps(out, first_lanes(count), x); }

ALWAYS_INLINE ivec ivec_load(const void *x) { return _mm256_loadu_si256(x); }
ALWAYS_INLINE void ivec_store(void *out, ivec x) { _mm256_storeu_si256(out, x); }
ALWAYS_INLINE ivec ivec_set(int32_t x) { return _mm256_set1_epi32(x); }
ALWAYS_INLINE ivec ivec_set64(const void *x) { return _mm256_broadcastq_epi64(_mm_loadl_epi64(x)); }
ALWAYS_INLINE ivec ivec_add(ivec a, ivec b) { return _mm256_add_epi32(a, b); }
ALWAYS_INLINE ivec ivec_sub(ivec a, ivec b) { return _mm256_sub_epi32(a, b); }
ALWAYS_INLINE ivec ivec_and(ivec a, ivec b) { return _mm256_and_si256(a, b); }
ALWAYS_INLINE ivec ivec_or(ivec a, ivec b) { return _mm256_or_si256(a, b); }
ALWAYS_INLINE ivec ivec_xor(ivec a, ivec b) { return _mm256_xor_si256(a, b); }
ALWAYS_INLINE ivec ivec_reorder(ivec x, const int order[8])
{
    return _mm256_permutevar8x32_epi32(x, _mm256_loadu_si256((const void *)order));
}

ALWAYS_INLINE ivec ivec_min(ivec a, ivec b) { return _mm256_min_epi32(a, b); }
ALWAYS_INLINE ivec ivec_max(ivec a, ivec b) { return _mm256_max_epi32(a, b); }
ALWAYS_INLINE ivec ivec_left(ivec x, unsigned bits) { return _mm256_slli_epi32(x, (int)bits); }
ALWAYS_INLINE ivec ivec_right(ivec x, unsigned bits) { return _mm256_srli_epi32(x, (int)bits); }

// The sum stays in its register: compilers like to gather many products first and add them later, from memory.
ALWAYS_INLINE ivec ivec_dot16(ivec sum, ivec a, ivec b)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__("" : "+x"(sum));
    return sum;
}

ALWAYS_INLINE ivec ivec_left16(ivec x, unsigned bits) { return _mm256_slli_epi16(x, (int)bits); }
ALWAYS_INLINE ivec ivec_right16(ivec x, unsigned bits) { return _mm256_srai_epi16(x, (int)bits); }
ALWAYS_INLINE ivec ivec_sub8(ivec a, ivec b) { return _mm256_sub_epi8(a, b); }
ALWAYS_INLINE ivec ivec_sub16(ivec a, ivec b) { return _mm256_sub_epi16(a, b); }
ALWAYS_INLINE ivec ivec_look_up8(ivec x, __m128i table)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), x);
}

ALWAYS_INLINE ivec ivec_if_less(ivec a, ivec b, ivec yes, ivec no)
{
    return _mm256_blendv_epi8(no, yes, _mm256_cmpgt_epi32(b, a));
}

ALWAYS_INLINE halfvec half_load(const void *x) { return _mm_loadu_si128(x); }
ALWAYS_INLINE void half_store(void *out, halfvec x) { _mm_storeu_si128(out, x); }
ALWAYS_INLINE halfvec half_from_bytes(const void *x) { return _mm_cvtepi8_epi16(_mm_loadl_epi64(x)); }
ALWAYS_INLINE halfvec half_set(int16_t x) { return _mm_set1_epi16(x); }
ALWAYS_INLINE halfvec half_and(halfvec a, halfvec b) { return _mm_and_si128(a, b); }
ALWAYS_INLINE halfvec half_left(halfvec x, int bits) { return _mm_slli_epi16(x, bits); }
ALWAYS_INLINE vec vec_from_f16(halfvec x) { return _mm256_cvtph_ps(x); }
ALWAYS_INLINE halfvec vec_to_f16(vec x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE ivec ivec_from_u16(halfvec x) { return _mm256_cvtepu16_epi32(x); }
ALWAYS_INLINE ivec ivec_from_i8(const void *x) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(x)); }

// Packing works within halves of 128 bits and saturates: low halves first, then both together.
ALWAYS_INLINE halfvec ivec_to_u16(ivec x)
{
    ivec low = _mm256_and_si256(x, _mm256_set1_epi32(0xFFFF));
    return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}

ALWAYS_INLINE void ivec_store_u8(void *out, ivec x)
{
    halfvec words = ivec_to_u16(_mm256_and_si256(x, _mm256_set1_epi32(0xFF)));
    _mm_storel_epi64(out, _mm_packus_epi16(words, words));
}

ALWAYS_INLINE void ivec_store_nibbles(void *out, ivec x)
{
    ivec bytes = _mm256_or_si256(x, _mm256_srli_epi64(x, 28));
    uint32_t packed = (uint32_t)_mm256_extract_epi8(bytes, 0) | (uint32_t)_mm256_extract_epi8(bytes, 8) << 8
        | (uint32_t)_mm256_extract_epi8(bytes, 16) << 16 | (uint32_t)_mm256_extract_epi8(bytes, 24) << 24;
    memcpy(out, &packed, sizeof packed);
}

ALWAYS_INLINE vec vec_from_e2m1(ivec codes)
{
    vec magnitude = _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), codes); // by three bits
    return vec_from_bits(ivec_or(vec_bits(magnitude), ivec_left(ivec_right(codes, 3), 31)));
}

ALWAYS_INLINE void vec_split(vec low, vec high, vec *even, vec *odd)
{
    __m256d a = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)); // in halves: low, high, low, high
    __m256d b = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xDD));
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(a, 0xD8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(b, 0xD8));
}

ALWAYS_INLINE __m256 halves_sum(vec x) { return x; }
ALWAYS_INLINE __m256 halves_max(vec x) { return x; }
#endif

// The first lanes, 1 to all of them.
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
