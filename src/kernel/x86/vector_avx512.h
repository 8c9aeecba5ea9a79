// SPDX-License-Identifier: Apache-2.0
// kernel/x86/vector_avx512.h: the primitives of vector.h that differ between instruction sets, for AVX-512.
#ifndef KERNEL_X86_VECTOR_AVX512_H
#define KERNEL_X86_VECTOR_AVX512_H

ALWAYS_INLINE vec vec_round(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE vec vec_abs(vec x) { return _mm512_abs_ps(x); }
ALWAYS_INLINE vec vec_from_bits(ivec x) { return _mm512_castsi512_ps(x); }

// a < b ? yes : no, per lane; NaN compares false.
ALWAYS_INLINE vec vec_if_less(vec a, vec b, vec yes, vec no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

ALWAYS_INLINE ivec vec_choose_less(vec a, vec b, ivec yes, ivec no)
{
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

ALWAYS_INLINE bool vec_any_nan(vec x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }

// Lanes [first, end) from x, the others from `other`.
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

ALWAYS_INLINE ivec ivec_set128(__m128i x) { return _mm512_broadcast_i32x4(x); }

// Permutes each eight lanes by `order`.
ALWAYS_INLINE ivec ivec_reorder(ivec x, const int order[8])
{
    __m256i eight = _mm256_loadu_si256((const void *)order);
    ivec both = _mm512_inserti64x4(_mm512_castsi256_si512(eight), _mm256_add_epi32(eight, _mm256_set1_epi32(8)), 1);
    return _mm512_permutexvar_epi32(both, x);
}

// Dot products of pairs of 16-bit integers, added to each 32-bit lane.
ALWAYS_INLINE ivec ivec_dot16(ivec sum, ivec a, ivec b) { return _mm512_dpwssd_epi32(sum, a, b); }

ALWAYS_INLINE ivec ivec_if_less(ivec a, ivec b, ivec yes, ivec no)
{
    return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), no, yes);
}

ALWAYS_INLINE __m128i load_bytes(const void *x) { return _mm_loadu_si128(x); } // one byte per lane
ALWAYS_INLINE halfvec ivec_to_u16(ivec x) { return _mm512_cvtepi32_epi16(x); } // the low halves
ALWAYS_INLINE void ivec_store_u8(void *out, ivec x) { _mm_storeu_si128(out, _mm512_cvtepi32_epi8(x)); } // low bytes

// Packs codes of 0 to 15 into nibbles, the even ones low.
ALWAYS_INLINE void ivec_store_nibbles(void *out, ivec x)
{
    _mm_storel_epi64(out, _mm512_cvtepi64_epi8(_mm512_or_si512(x, _mm512_srli_epi64(x, 28))));
}

// Deinterleaves two vectors into even and odd values.
ALWAYS_INLINE void vec_split(vec low, vec high, vec *even, vec *odd)
{
    ivec at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(low, at, high);
    *odd = _mm512_permutex2var_ps(low, _mm512_add_epi32(at, _mm512_set1_epi32(1)), high);
}

ALWAYS_INLINE __m256 high_half(vec x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }
ALWAYS_INLINE __m256 halves_sum(vec x) { return _mm256_add_ps(_mm512_castps512_ps256(x), high_half(x)); }
ALWAYS_INLINE __m256 halves_max(vec x) { return _mm256_max_ps(_mm512_castps512_ps256(x), high_half(x)); }

// The second half of transpose(): moves the 4 x 4 squares.
ALWAYS_INLINE void transpose_squares(const vec part[LANES], vec rows[LANES])
{
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

// Flips the signs of the lanes whose bits are set.
ALWAYS_INLINE vec flip_lanes(vec x, uint32_t lanes)
{
    ivec bits = vec_bits(x);
    return vec_from_bits(_mm512_mask_xor_epi32(bits, (__mmask16)lanes, bits, ivec_set(INT32_MIN)));
}

// A Hadamard transform of the lanes, by butterflies.
#define STAGE(x, swapped, lanes) ((swapped) + flip_lanes(x, lanes))
ALWAYS_INLINE vec mix_lanes(vec x)
{
    x = STAGE(x, _mm512_permute_ps(x, 0xB1), 0xAAAA);
    x = STAGE(x, _mm512_permute_ps(x, 0x4E), 0xCCCC);
    x = STAGE(x, _mm512_shuffle_f32x4(x, x, 0xB1), 0xF0F0);
    return STAGE(x, _mm512_shuffle_f32x4(x, x, 0x4E), 0xFF00);
}
#undef STAGE

#endif
