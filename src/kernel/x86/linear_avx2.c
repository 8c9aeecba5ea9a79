// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_avx2.c: linear with 256-bit vectors: a register is four k of eight rows. Products of unsigned codes
// are summed in 16 bits for as long as they fit; signed codes lend their sign to the activations.
#include <assert.h>
#include <immintrin.h>

#include "kernel/blocks.h"
#include "kernel/x86/linear_x.h"

enum { LANES = 8, HALVES = 2, TILE_TOKENS = 4, TOKENS_AT_ONCE = 4, TILE_WIDTH_COUNT = 3 };
#define TILE_WIDTHS(M, id) M(id, 1) M(id, 2) M(id, 4)
#define TILE_WIDTHS_WITH(M, id, ...) M(id, 1, __VA_ARGS__) M(id, 2, __VA_ARGS__) M(id, 4, __VA_ARGS__)

typedef __m256 floats;
typedef __m256i integers;

TILE_INLINE floats zero(void) { return _mm256_setzero_ps(); }
TILE_INLINE integers no_integers(void) { return _mm256_setzero_si256(); }
TILE_INLINE floats add(floats a, floats b) { return _mm256_add_ps(a, b); }
TILE_INLINE floats multiply(floats a, floats b) { return _mm256_mul_ps(a, b); }
TILE_INLINE floats multiply_add(floats a, floats b, floats c) { return _mm256_fmadd_ps(a, b, c); }
TILE_INLINE floats to_floats(integers a) { return _mm256_cvtepi32_ps(a); }
TILE_INLINE integers shift_left(integers a, int count) { return _mm256_slli_epi32(a, count); }
TILE_INLINE floats splat(const uint8_t *x) { return _mm256_broadcast_ss((const void *)x); }
TILE_INLINE integers splat_integer(const uint8_t *x) { return _mm256_set1_epi32(*(const int32_t *)(const void *)x); }
TILE_INLINE void store(float *out, floats a) { _mm256_storeu_ps(out, a); }

TILE_INLINE __m128i load_bytes(const uint8_t *w) { return _mm_loadl_epi64((const void *)w); }
TILE_INLINE __m128i load_words(const uint8_t *w) { return _mm_loadu_si128((const void *)w); }

TILE_INLINE floats load_f32(const uint8_t *w) { return _mm256_loadu_ps((const void *)w); }
TILE_INLINE floats load_f16(const uint8_t *w) { return _mm256_cvtph_ps(load_words(w)); }
TILE_INLINE floats load_u8(const uint8_t *w) { return to_floats(_mm256_cvtepu8_epi32(load_bytes(w))); }
TILE_INLINE floats load_i8(const uint8_t *w) { return to_floats(_mm256_cvtepi8_epi32(load_bytes(w))); }

TILE_INLINE floats load_bf16(const uint8_t *w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_words(w)), 16));
}

// A power of two is its exponent; the least one, 2^-127, is not a normal number.
TILE_INLINE floats load_half_e8m0(const uint8_t *w)
{
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(load_bytes(w)), F32_MANTISSA);
    bits = _mm256_max_epi32(bits, _mm256_set1_epi32(1 << (F32_MANTISSA - 1)));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0.5f));
}

// Seven bits further up, E4M3 is an f16 of a 256th of its value.
TILE_INLINE floats load_half_e4m3(const uint8_t *w)
{
    __m128i bits = _mm_slli_epi16(_mm_cvtepu8_epi16(load_bytes(w)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(bits), _mm256_set1_ps(128));
}

// E4M3 from the low or the high bytes of sixteen words, as f16 of 256ths.
TILE_INLINE void load_e4m3(const uint8_t *w, bool high, floats out[HALVES])
{
    __m256i words = _mm256_loadu_si256((const void *)w);
    words = high ? words : _mm256_slli_epi16(words, 8);
    words = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xBF80));
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
}

// ---- codes ----

// Minus the offset times the sum of a sub-block's activations.
TILE_INLINE integers offset_of(struct packed_format f, int part, const uint8_t *x, int tokens, int token)
{
    return shift_left(splat_integer(tile_part(x, tokens, tile_minus(f, part), token)), f.offset);
}

struct dequantised {
    const uint8_t *codes; // registers are few: each quad is dequantised when it is wanted
};

TILE_INLINE struct dequantised dequantise(struct packed_format f, const uint8_t *codes, int part)
{
    (void)f, (void)part;
    return (struct dequantised){ codes };
}

// The plane's part of quad i, moved to bit `to`.
TILE_INLINE __m256i plane_bits(const uint8_t *plane, int width, int i, int to)
{
    __m256i vector = _mm256_loadu_si256((const void *)(plane + i % width * PACKED_VECTOR));
    int shift = i / width * width - to;
    if (width == 8)
        return vector;
    vector = shift > 0 ? _mm256_srli_epi16(vector, shift) : _mm256_slli_epi16(vector, -shift);
    return _mm256_and_si256(vector, _mm256_set1_epi8((char)(((1 << width) - 1) << to)));
}

TILE_INLINE bool is_signed(struct packed_format f) { return f.levels == PACKED_SIGNED || f.levels == PACKED_IQ4; }

// Quad i of eight rows as what its codes stand for, or, where they are not signed, raised by the offset.
TILE_INLINE __m256i quad_of(struct packed_format f, const uint8_t *codes, int i)
{
    static const int8_t iq4[16] = { IQ4_LEVELS }, e2m1[16] = { E2M1_DOUBLED };
    int width = packed_plane(f.bits), rest = f.bits - width;
    __m256i quad = plane_bits(codes, width, i, 0);
    if (rest)
        quad = _mm256_or_si256(quad, plane_bits(codes + width * PACKED_VECTOR, rest, i, width));
    if (f.levels == PACKED_CODES || f.levels == PACKED_SIGNED)
        return quad;
    const int8_t *table = f.levels == PACKED_IQ4 ? iq4 : e2m1;
    __m256i two_tables = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table));
    if (f.levels == PACKED_E2M1)
        two_tables = _mm256_add_epi8(two_tables, _mm256_set1_epi8((char)(1 << f.offset)));
    return _mm256_shuffle_epi8(two_tables, quad);
}

// Pairs of products of how many quads a 16-bit sum can take: 2 * 127 * the largest code each.
TILE_INLINE int quads_in_16_bits(struct packed_format f)
{
    int largest = f.levels == PACKED_E2M1 ? (1 << f.offset) + 12 : (1 << f.bits) - 1;
    int most = INT16_MAX / (2 * INT8_LARGEST * largest), quads = f.sub / 4;
    while (quads > most)
        quads /= 2;
    return is_signed(f) ? 1 : quads;
}

TILE_INLINE __m256i products(struct packed_format f, __m256i quad, __m256i x)
{
    return is_signed(f) ? _mm256_maddubs_epi16(_mm256_abs_epi8(quad), _mm256_sign_epi8(x, quad))
                        : _mm256_maddubs_epi16(quad, x);
}

// The sum stays in its register: compilers like to gather many products first and add them later, from memory.
TILE_INLINE void add_in_place(__m256i *sum, __m256i pairs)
{
    *sum = _mm256_add_epi16(*sum, pairs);
    __asm__("" : "+x"(*sum));
}

TILE_INLINE void dot(struct packed_format f, const struct dequantised *w, int part, const uint8_t *x, int tokens,
                     int first, int count, integers out[TOKENS_AT_ONCE][HALVES])
{
    int quad = part * PACKED_QUADS / 2, run = quads_in_16_bits(f);
    UNROLL for (int t = 0; t < count; t++) for (int half = 0; half < HALVES; half++)
        out[t][half] = f.offset && !is_signed(f) ? offset_of(f, part, x, tokens, first + t) : no_integers();
    UNROLL for (int end = quad + f.sub / 4; quad < end; quad += run)
    {
        __m256i sums[TOKENS_AT_ONCE][HALVES];
        UNROLL for (int t = 0; t < count; t++) for (int half = 0; half < HALVES; half++) sums[t][half] = no_integers();
        UNROLL for (int i = 0; i < run; i++)
        {
            __m256i low = quad_of(f, w->codes, quad + i), high = quad_of(f, w->codes + PACKED_VECTOR / 2, quad + i);
            UNROLL for (int t = 0; t < count; t++)
            {
                __m256i four = splat_integer(x + (first + t) * INT8_BLOCK + 4 * (quad + i));
                add_in_place(&sums[t][0], products(f, low, four));
                add_in_place(&sums[t][1], products(f, high, four));
            }
        }
        UNROLL for (int t = 0; t < count; t++) for (int half = 0; half < HALVES; half++)
            out[t][half] = _mm256_add_epi32(out[t][half], _mm256_madd_epi16(sums[t][half], _mm256_set1_epi16(1)));
    }
}

#include "kernel/x86/linear_tile.h"
#define any_int8_tile int8_tile
#include "kernel/x86/linear_walk.h"

#include "kernel/x86/experts_walk.h"

void linear_avx2_few(const void *args, int part, int parts) { run_few(args, part, parts); }

void linear_avx2_many(const void *args, int part, int parts) { run_many(args, part, parts); }

void linear_avx2_prepare(const void *args, int part, int parts) { prepare_many(args, part, parts); }

void linear_avx2_float_few(const void *args, int part, int parts)
{
    struct linear_args floats = decoded(args);
    run_few(&floats, part, parts);
}

void linear_avx2_float_many(const void *args, int part, int parts)
{
    struct linear_args floats = decoded(args);
    run_many(&floats, part, parts);
}

void linear_avx2_float_prepare(const void *args, int part, int parts)
{
    struct linear_args floats = decoded(args);
    prepare_many(&floats, part, parts);
}

void experts_avx2(const void *args, int part, int parts) { run_experts(args, part, parts); }

void experts_avx2_prepare(const void *args, int part, int parts) { prepare_experts(args, part, parts); }
