// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_vectors_avx512.h: 512-bit vectors for linear_tile.h: a register is four k of sixteen rows.
#ifndef KERNEL_X86_LINEAR_VECTORS_AVX512_H
#define KERNEL_X86_LINEAR_VECTORS_AVX512_H

#include "kernel/blocks.h"
#include "kernel/x86/linear_x.h"

enum { LANES = 16, HALVES = 1 };

typedef __m512 floats;
typedef __m512i integers;

TILE_INLINE floats zero(void) { return _mm512_setzero_ps(); }
TILE_INLINE floats add(floats a, floats b) { return _mm512_add_ps(a, b); }
TILE_INLINE floats multiply(floats a, floats b) { return _mm512_mul_ps(a, b); }
TILE_INLINE floats multiply_add(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }
TILE_INLINE floats to_floats(integers a) { return _mm512_cvtepi32_ps(a); }
TILE_INLINE integers shift_left(integers a, int count) { return _mm512_slli_epi32(a, (unsigned)count); }
TILE_INLINE floats splat(const uint8_t *x) { return _mm512_set1_ps(*(const float *)(const void *)x); }
TILE_INLINE integers splat_integer(const uint8_t *x) { return _mm512_set1_epi32(*(const int32_t *)(const void *)x); }
TILE_INLINE void store(float *out, floats a) { _mm512_storeu_ps(out, a); }

TILE_INLINE __m128i load_bytes(const uint8_t *w) { return _mm_loadu_si128((const void *)w); }
TILE_INLINE __m256i load_words(const uint8_t *w) { return _mm256_loadu_si256((const void *)w); }

TILE_INLINE floats load_f32(const uint8_t *w) { return _mm512_loadu_ps(w); }
TILE_INLINE floats load_f16(const uint8_t *w) { return _mm512_cvtph_ps(load_words(w)); }
TILE_INLINE floats load_u8(const uint8_t *w) { return to_floats(_mm512_cvtepu8_epi32(load_bytes(w))); }
TILE_INLINE floats load_i8(const uint8_t *w) { return to_floats(_mm512_cvtepi8_epi32(load_bytes(w))); }

TILE_INLINE floats load_bf16(const uint8_t *w)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_words(w)), 16));
}

// A power of two is its exponent; the least one, 2^-127, is not a normal number.
TILE_INLINE floats load_half_e8m0(const uint8_t *w)
{
    __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(load_bytes(w)), F32_MANTISSA);
    bits = _mm512_max_epi32(bits, _mm512_set1_epi32(1 << (F32_MANTISSA - 1)));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0.5f));
}

// Seven bits further up, E4M3 is an f16 of a 256th of its value.
TILE_INLINE floats load_half_e4m3(const uint8_t *w)
{
    __m256i bits = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_bytes(w)), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(128));
}

// E4M3 from the low or the high bytes of sixteen words, as f16 of 256ths.
TILE_INLINE void load_e4m3(const uint8_t *w, bool high, floats out[HALVES])
{
    __m256i words = high ? load_words(w) : _mm256_slli_epi16(load_words(w), 8);
    words = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xBF80));
    out[0] = _mm512_cvtph_ps(words);
}

// ---- codes ----

// Minus the offset times the sum of a sub-block's activations.
TILE_INLINE integers offset_of(struct packed_format f, int part, const uint8_t *x, int tokens, int token)
{
    return shift_left(splat_integer(tile_part(x, tokens, tile_minus(f, part), token)), f.offset);
}

struct dequantised {
    __m512i quads[PACKED_QUADS]; // of the sub-block; unsigned
};

// The plane's part of quad i, moved to bit `to`.
TILE_INLINE __m512i plane_bits(const uint8_t *plane, int width, int i, int to)
{
    __m512i vector = _mm512_loadu_si512(plane + i % width * PACKED_VECTOR);
    int shift = i / width * width - to;
    if (width == 8)
        return vector;
    vector = shift > 0 ? _mm512_srli_epi16(vector, (unsigned)shift) : _mm512_slli_epi16(vector, (unsigned)-shift);
    return _mm512_and_si512(vector, _mm512_set1_epi8((char)(((1 << width) - 1) << to)));
}

TILE_INLINE __m512i levels(struct packed_format f, __m512i codes)
{
    static const int8_t iq4[16] = { IQ4_LEVELS }, e2m1[16] = { E2M1_DOUBLED };
    if (f.levels == PACKED_CODES)
        return codes;
    __m512i raised = _mm512_set1_epi8((char)(1 << f.offset));
    if (f.levels == PACKED_SIGNED)
        return _mm512_xor_si512(codes, raised);
    const int8_t *table = f.levels == PACKED_IQ4 ? iq4 : e2m1;
    __m512i four_tables = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table));
    return _mm512_shuffle_epi8(_mm512_add_epi8(four_tables, raised), codes);
}

TILE_INLINE struct dequantised dequantise(struct packed_format f, const uint8_t *codes, int part)
{
    struct dequantised out;
    int first = part * PACKED_QUADS / 2, count = f.sub / 4;
    UNROLL for (int i = first; i < first + count; i++)
    {
        int width = packed_plane(f.bits), rest = f.bits - width;
        __m512i quad = plane_bits(codes, width, i, 0);
        if (rest)
            quad = _mm512_or_si512(quad, plane_bits(codes + width * PACKED_VECTOR, rest, i, width));
        out.quads[i] = levels(f, quad);
    }
    return out;
}

// One token.
TILE_INLINE integers dot_token(struct packed_format f, const struct dequantised *w, int part, const uint8_t *x,
                               int tokens, int token)
{
    int quad = part * PACKED_QUADS / 2;
    integers sum = f.offset ? offset_of(f, part, x, tokens, token) : _mm512_setzero_si512();
    UNROLL for (int i = quad; i < quad + f.sub / 4; i++)
        sum = _mm512_dpbusd_epi32(sum, w->quads[i], splat_integer(x + token * INT8_BLOCK + 4 * i));
    return sum;
}

enum { TILE_TOKENS = 16, TOKENS_AT_ONCE = 1, TILE_WIDTH_COUNT = 5 };
#define TILE_WIDTHS(M, id) M(id, 1) M(id, 2) M(id, 4) M(id, 8) M(id, 16)
#define TILE_WIDTHS_WITH(M, id, ...) \
    M(id, 1, __VA_ARGS__) M(id, 2, __VA_ARGS__) M(id, 4, __VA_ARGS__) M(id, 8, __VA_ARGS__) M(id, 16, __VA_ARGS__)

TILE_INLINE void dot(struct packed_format f, const struct dequantised *w, int part, const uint8_t *x, int tokens,
                     int first, int count, integers out[TOKENS_AT_ONCE][HALVES])
{
    (void)count;
    out[0][0] = dot_token(f, w, part, x, tokens, first);
}

#endif
