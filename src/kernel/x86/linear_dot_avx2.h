// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_dot_avx2.h: int8 dot products for linear_tile.c with AVX2: a register is four k of eight rows.
// Products of unsigned codes are summed in 16 bits as long as they fit; for signed codes the sign is moved to the
// activations.
#ifndef KERNEL_X86_LINEAR_DOT_AVX2_H
#define KERNEL_X86_LINEAR_DOT_AVX2_H

enum { TOKENS_AT_ONCE = 4 };
#define TILE_WIDTHS(M, ...) M(1, __VA_ARGS__) M(2, __VA_ARGS__) M(4, __VA_ARGS__)

// E4M3 from the low or the high bytes of sixteen words, as f16 of 256ths.
ALWAYS_INLINE void load_e4m3(const uint8_t *w, bool high, vec out[HALVES])
{
    ivec words = _mm256_loadu_si256((const void *)w);
    words = high ? words : _mm256_slli_epi16(words, 8);
    words = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xBF80));
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
}

struct dequantised {
    const uint8_t *codes; // too few registers: quads are dequantised on use
};

ALWAYS_INLINE struct dequantised dequantise(struct packed_format f, const uint8_t *codes, int part)
{
    (void)f, (void)part;
    return (struct dequantised){ codes };
}

ALWAYS_INLINE bool is_signed(struct packed_format f) { return f.levels == PACKED_SIGNED || f.levels == PACKED_IQ4; }

// The levels of quad i of eight rows; unsigned formats are biased by the offset.
ALWAYS_INLINE ivec quad_of(struct packed_format f, const uint8_t *codes, int i)
{
    ivec quad = quad_codes(f, codes, i);
    if (f.levels == PACKED_CODES || f.levels == PACKED_SIGNED)
        return quad;
    ivec table = ivec_set128(level_table(f));
    if (f.levels == PACKED_E2M1)
        table = _mm256_add_epi8(table, _mm256_set1_epi8((char)(1 << f.offset)));
    return _mm256_shuffle_epi8(table, quad);
}

// How many quads a 16-bit sum can add without overflow, at 2 * 127 * the largest code each.
ALWAYS_INLINE int quads_in_16_bits(struct packed_format f)
{
    int largest = f.levels == PACKED_E2M1 ? (1 << f.offset) + 12 : (1 << f.bits) - 1;
    int most = INT16_MAX / (2 * INT8_LARGEST * largest), quads = f.sub / 4;
    while (quads > most)
        quads /= 2;
    return is_signed(f) ? 1 : quads;
}

ALWAYS_INLINE ivec products(struct packed_format f, ivec quad, ivec x)
{
    return is_signed(f) ? _mm256_maddubs_epi16(_mm256_abs_epi8(quad), _mm256_sign_epi8(x, quad))
                        : _mm256_maddubs_epi16(quad, x);
}

// Keeps the sum in a register: compilers tend to spill many products and add them later.
ALWAYS_INLINE void add_in_place(ivec *sum, ivec pairs)
{
    *sum = _mm256_add_epi16(*sum, pairs);
    __asm__("" : "+x"(*sum));
}

// A stream is one plane of one token; those of a token are neighbours. Sums of high planes count 2^INT16_SHIFT times.
ALWAYS_INLINE void dot(struct packed_format f, const struct dequantised *w, int part, struct tile x, int first,
                       int count, ivec out[TOKENS_AT_ONCE][HALVES])
{
    int quad = part * PACKED_QUADS / 2, run = quads_in_16_bits(f), streams = count * x.planes;
    UNROLL for (int t = 0; t < count; t++) for (int half = 0; half < HALVES; half++)
        out[t][half] = f.offset && !is_signed(f) ? offset_of(f, part, x, first + t) : ivec_set(0);
    UNROLL for (int end = quad + f.sub / 4; quad < end; quad += run)
    {
        ivec sums[TOKENS_AT_ONCE][HALVES];
        UNROLL for (int s = 0; s < streams; s++) for (int half = 0; half < HALVES; half++) sums[s][half] = ivec_set(0);
        UNROLL for (int i = 0; i < run; i++)
        {
            ivec low = quad_of(f, w->codes, quad + i), high = quad_of(f, w->codes + PACKED_VECTOR / 2, quad + i);
            UNROLL for (int s = 0; s < streams; s++)
            {
                ivec four = splat_int(tile_quad(x, s % x.planes, first + s / x.planes, quad + i));
                add_in_place(&sums[s][0], products(f, low, four));
                add_in_place(&sums[s][1], products(f, high, four));
            }
        }
        UNROLL for (int s = 0; s < streams; s++) for (int half = 0; half < HALVES; half++)
        {
            int times = s % x.planes < x.planes - 1 ? 1 << INT16_SHIFT : 1;
            ivec *sum = &out[s / x.planes][half];
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(sums[s][half], _mm256_set1_epi16((short)times)));
        }
    }
}

#endif
