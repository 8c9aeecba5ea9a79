// SPDX-License-Identifier: Apache-2.0
// kernel/x86/vector_avx2.h: the primitives of vector.h that differ between instruction sets, for AVX2; documented in
// vector_avx512.h.
#ifndef KERNEL_X86_VECTOR_AVX2_H
#define KERNEL_X86_VECTOR_AVX2_H

ALWAYS_INLINE vec vec_round(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ALWAYS_INLINE vec vec_abs(vec x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
ALWAYS_INLINE vec vec_from_bits(ivec x) { return _mm256_castsi256_ps(x); }

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

ALWAYS_INLINE ivec ivec_set128(__m128i x) { return _mm256_broadcastsi128_si256(x); }

ALWAYS_INLINE ivec ivec_reorder(ivec x, const int order[8])
{
    return _mm256_permutevar8x32_epi32(x, _mm256_loadu_si256((const void *)order));
}

// Keeps the sum in a register: compilers tend to spill many products and add them later.
ALWAYS_INLINE ivec ivec_dot16(ivec sum, ivec a, ivec b)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__("" : "+x"(sum));
    return sum;
}

ALWAYS_INLINE ivec ivec_if_less(ivec a, ivec b, ivec yes, ivec no)
{
    return _mm256_blendv_epi8(no, yes, _mm256_cmpgt_epi32(b, a));
}

ALWAYS_INLINE __m128i load_bytes(const void *x) { return _mm_loadl_epi64(x); }

// Pack instructions saturate and work within 128-bit halves, so the low 16 bits are masked first.
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

ALWAYS_INLINE void vec_split(vec low, vec high, vec *even, vec *odd)
{
    __m256d a = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)); // in halves: low, high, low, high
    __m256d b = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xDD));
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(a, 0xD8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(b, 0xD8));
}

ALWAYS_INLINE __m256 halves_sum(vec x) { return x; }
ALWAYS_INLINE __m256 halves_max(vec x) { return x; }

ALWAYS_INLINE void transpose_squares(const vec part[LANES], vec rows[LANES])
{
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm256_permute2f128_ps(part[i], part[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(part[i], part[i + 4], 0x31);
    }
}

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
#undef STAGE

#endif
