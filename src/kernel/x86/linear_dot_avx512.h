// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_dot_avx512.h: int8 dot products for linear_tile.c with AVX-512 VNNI: a register is four k of
// sixteen rows.
#ifndef KERNEL_X86_LINEAR_DOT_AVX512_H
#define KERNEL_X86_LINEAR_DOT_AVX512_H

enum { TOKENS_AT_ONCE = 1 };
#define TILE_WIDTHS(M, ...) M(1, __VA_ARGS__) M(2, __VA_ARGS__) M(4, __VA_ARGS__) M(8, __VA_ARGS__) M(16, __VA_ARGS__)

// E4M3 from the low or the high bytes of sixteen words, as f16 of 256ths.
ALWAYS_INLINE void load_e4m3(const uint8_t *w, bool high, vec out[HALVES])
{
    __m256i words = high ? half_load(w) : _mm256_slli_epi16(half_load(w), 8);
    words = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xBF80));
    out[0] = _mm512_cvtph_ps(words);
}

struct dequantised {
    ivec quads[PACKED_QUADS]; // of the sub-block; unsigned
};

ALWAYS_INLINE ivec levels(struct packed_format f, ivec codes)
{
    if (f.levels == PACKED_CODES)
        return codes;
    ivec raised = _mm512_set1_epi8((char)(1 << f.offset));
    if (f.levels == PACKED_SIGNED)
        return _mm512_xor_si512(codes, raised);
    return _mm512_shuffle_epi8(_mm512_add_epi8(ivec_set128(level_table(f)), raised), codes);
}

// Nibbles: a vector has two quads. It is loaded once, since decode is limited by loads; left alone, compilers load it
// as an operand of each.
ALWAYS_INLINE void dequantise_nibbles(struct packed_format f, const uint8_t *codes, ivec quads[PACKED_QUADS])
{
    UNROLL for (int i = 0; i < PACKED_QUADS / 2; i++)
    {
        ivec both = ivec_load(codes + i * PACKED_VECTOR), low = ivec_set(0x0F0F0F0F);
        __asm__("" : "+v"(both));
        quads[i] = levels(f, ivec_and(both, low));
        quads[i + PACKED_QUADS / 2] = levels(f, ivec_and(_mm512_srli_epi16(both, 4), low));
    }
}

ALWAYS_INLINE struct dequantised dequantise(struct packed_format f, const uint8_t *codes, int part)
{
    struct dequantised out;
    int first = part * PACKED_QUADS / 2, end = first + f.sub / 4;
    if (f.bits == 4 && f.sub == INT8_BLOCK)
        dequantise_nibbles(f, codes, out.quads);
    else
        UNROLL for (int i = first; i < end; i++) { out.quads[i] = levels(f, quad_codes(f, codes, i)); }
    return out;
}

// One plane of one token, added to `sum`. A whole block's products are added in two chains, which wait for half as
// many: integer sums are exact in any order.
ALWAYS_INLINE ivec dot_plane(struct packed_format f, const struct dequantised *w, int part, struct tile x, int plane,
                             int token, ivec sum)
{
    enum { CHAINS = 2 };
    int first = part * PACKED_QUADS / 2, end = first + f.sub / 4, chains = f.sub == INT8_BLOCK ? CHAINS : 1;
    ivec sums[CHAINS] = { sum, ivec_set(0) };
    UNROLL for (int i = first; i < end; i++)
        sums[i % chains] = _mm512_dpbusd_epi32(sums[i % chains], w->quads[i], splat_int(tile_quad(x, plane, token, i)));
    return chains == CHAINS ? ivec_add(sums[0], sums[1]) : sums[0];
}

ALWAYS_INLINE void dot(struct packed_format f, const struct dequantised *w, int part, struct tile x, int first,
                       int count, ivec out[TOKENS_AT_ONCE][HALVES])
{
    (void)count;
    ivec sum = f.offset ? offset_of(f, part, x, first) : ivec_set(0);
    sum = dot_plane(f, w, part, x, x.planes - 1, first, sum);
    if (x.planes == TILE_INT16)
        sum = ivec_add(sum, ivec_left(dot_plane(f, w, part, x, 0, first, ivec_set(0)), INT16_SHIFT));
    out[0][0] = sum;
}

#endif
