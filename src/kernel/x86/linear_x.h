// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_x.h: activations in the order in which tiles read them. Tokens are cut into tiles of as many as the
// instruction set likes, what is left over into powers of two.
//   (1) a tile of int8 is a sequence of blocks of 32 k: 32 codes of each token, then each tile_part of all tokens
//   (2) a tile of floats is for each k the values of all tokens
//   (3) either way the tile that begins with token t begins t times a token's bytes after the first
#ifndef KERNEL_X86_LINEAR_X_H
#define KERNEL_X86_LINEAR_X_H

#include <immintrin.h>

#include "kernel/x86/packed.h"

#define TILE_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__OPTIMIZE__)
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif

enum tile_part {
    TILE_SCALE,      // float
    TILE_SUM,        // float: scale * sum of the codes
    TILE_MINUS,      // integer: minus the sum of the codes, of all 32
    TILE_MINUS_LOW,  // of the first 16
    TILE_MINUS_HIGH, // of the last 16
    TILE_PARTS
};

enum { TILE_INT8_BYTES = INT8_BLOCK + TILE_PARTS * 4 }; // of 32 k of one token
enum { TILE_FLOAT_BYTES = 4 };                          // of one k of one token
enum { FLOAT_BLOCK = 32 };                              // products that are summed before they join the others

TILE_INLINE const uint8_t *tile_part(const uint8_t *block, int tokens, enum tile_part part, int token)
{
    return block + tokens * INT8_BLOCK + ((int)part * tokens + token) * 4;
}

// The part with the sum of a sub-block's activations.
TILE_INLINE enum tile_part tile_minus(struct packed_format f, int part)
{
    return f.sub == INT8_BLOCK ? TILE_MINUS : part ? TILE_MINUS_HIGH : TILE_MINUS_LOW;
}

static inline int32_t sum_of_16(const int8_t *codes)
{
    __m128i raised = _mm_xor_si128(_mm_loadu_si128((const void *)codes), _mm_set1_epi8(-128));
    __m128i halves = _mm_sad_epu8(raised, _mm_setzero_si128());
    return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
}

static inline void tile_put(uint8_t *block, int tokens, enum tile_part part, int token, const void *value)
{
    memcpy(block + (tile_part(block, tokens, part, token) - block), value, 4);
}

// One block of a tile from x, whose rows are `in` apart.
static inline void fill_int8(const float *x, int in, int tokens, uint8_t *block)
{
    for (int token = 0; token < tokens; token++) {
        int8_t codes[INT8_BLOCK];
        float scale = int8_round(x + (size_t)token * (size_t)in, codes);
        int32_t low = -sum_of_16(codes), high = -sum_of_16(codes + INT8_BLOCK / 2);
        memcpy(block + token * INT8_BLOCK, codes, INT8_BLOCK);
        tile_put(block, tokens, TILE_SCALE, token, &scale);
        tile_put(block, tokens, TILE_SUM, token, &(float){ scale * (float)-(low + high) });
        tile_put(block, tokens, TILE_MINUS, token, &(int32_t){ low + high });
        tile_put(block, tokens, TILE_MINUS_LOW, token, &low);
        tile_put(block, tokens, TILE_MINUS_HIGH, token, &high);
    }
}

static inline void fill_floats(const float *x, int in, int tokens, int count, uint8_t *block)
{
    for (int k = 0; k < count; k++)
        for (int token = 0; token < tokens; token++)
            memcpy(block + (k * tokens + token) * TILE_FLOAT_BYTES, x + (size_t)token * (size_t)in + k, sizeof *x);
}

#endif
