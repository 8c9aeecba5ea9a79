// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_tile.h: the GEMM micro-kernels of linear and experts, and the packed activations that they read.
// Tokens are cut into register tiles of TILE_TOKENS, and the remainder into powers of two.
//   (1) a tile of integers is a sequence of blocks of 32 k: for each plane 32 codes of each token, then each tile_part
//       of all tokens. int8 activations are one plane, int16 ones two, high and low (kernel/int16.h)
//   (2) a tile of floats is for each k the values of all tokens
//   (3) in both, the tile that begins with token t begins at t times a token's bytes
#ifndef KERNEL_X86_LINEAR_TILE_H
#define KERNEL_X86_LINEAR_TILE_H

#include "kernel/int16.h"
#include "kernel/x86/packed.h"
#include "kernel/x86/table.h"

enum tile_part {
    TILE_SCALE,      // float
    TILE_SUM,        // float: scale * sum of the codes
    TILE_MINUS,      // integer: minus the sum of the codes, of all 32 (of int16: high * 128 + low)
    TILE_MINUS_LOW,  // of the first 16
    TILE_MINUS_HIGH, // of the last 16
    TILE_PARTS
};

enum tile_planes { TILE_INT8 = 1, TILE_INT16 = 2, TILE_PLANES_MAX = 2 };
enum { TILE_FLOAT_BYTES = 4 }; // of one k of one token

// Of 32 k of one token.
static inline int tile_integer_bytes(int planes) { return planes * INT8_BLOCK + TILE_PARTS * 4; }

static inline int tile_part_at(int planes, int tokens, enum tile_part part, int token)
{
    return planes * tokens * INT8_BLOCK + ((int)part * tokens + token) * 4;
}

// out[token][row] for the sixteen rows of a group of W and the tokens of a tile, over `in` values.
typedef void tile_run(const uint8_t *w, const uint8_t *x, int in, float *out);

#if defined(ISA)
#if defined(__AVX512F__)
enum { TILE_TOKENS = 16, TILE_WIDTH_COUNT = 5 };
#else
enum { TILE_TOKENS = 4, TILE_WIDTH_COUNT = 3 };
#endif

// By planes of activations less one (floats have those of one), by format, and by log2 of the number of tokens.
extern tile_run *const ISA_NAME(linear_tiles)[TILE_PLANES_MAX][DTYPE_COUNT][TILE_WIDTH_COUNT];

// Called before and after the micro-kernels: with AMX this configures and releases the tile registers if `tokens`
// tokens need them. linear_begin returns whether it did.
bool ISA_NAME(linear_begin)(uint64_t formats, int tokens);
void ISA_NAME(linear_end)(bool begun);
#endif

#endif
