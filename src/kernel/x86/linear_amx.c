// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_amx.c: linear with AMX tiles for sixteen tokens at a time: the codes of their activations are one
// tile, four k of sixteen rows of W a row of the other, and the dot products of all pairs the third. What is left over,
// and floats, go as in linear_avx512.c.
#include <assert.h>

#include "kernel/x86/linear_vectors_avx512.h"

enum { TILE_TOKENS = 16, TOKENS_AT_ONCE = 16, TILE_WIDTH_COUNT = 5 };
#define TILE_WIDTHS(M, id) M(id, 1) M(id, 2) M(id, 4) M(id, 8) M(id, 16)
#define TILE_WIDTHS_WITH(M, id, ...) \
    M(id, 1, __VA_ARGS__) M(id, 2, __VA_ARGS__) M(id, 4, __VA_ARGS__) M(id, 8, __VA_ARGS__) M(id, 16, __VA_ARGS__)

// The tiles, by number (part of the instructions' text for some compilers): dot products, then activations and weights
// of 32 k, then of 16.
#define DOTS 0
#define X_32 1
#define W_32 2
#define X_16 3
#define W_16 4

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct amx_config) == 64, "as the processor reads it");

static const struct amx_config amx_config = {
    .palette = 1,
    .row_bytes = { [DOTS] = 64, [X_32] = 32, [W_32] = 64, [X_16] = 16, [W_16] = 64 },
    .rows = { [DOTS] = 16, [X_32] = 16, [W_32] = 8, [X_16] = 16, [W_16] = 4 },
};

// Compilers do not know that tiles are read from memory and written to it.
TILE_INLINE void settle_memory(void)
{
    __asm__ volatile("" ::: "memory");
}

// Sixteen tokens.
TILE_INLINE void dot_tile(struct packed_format f, const struct unpacked *w, int part, const uint8_t *x,
                          integers out[TOKENS_AT_ONCE][HALVES])
{
    settle_memory();
    _tile_zero(DOTS);
    if (f.sub == INT8_BLOCK) {
        _tile_loadd(X_32, x, INT8_BLOCK);
        _tile_loadd(W_32, w->quads, PACKED_VECTOR);
        _tile_dpbsud(DOTS, X_32, W_32);
    } else {
        _tile_loadd(X_16, x + part * INT8_BLOCK / 2, INT8_BLOCK);
        _tile_loadd(W_16, w->quads + part * PACKED_QUADS / 2, PACKED_VECTOR);
        _tile_dpbsud(DOTS, X_16, W_16);
    }
    _tile_stored(DOTS, out, PACKED_VECTOR);
    settle_memory();
    if (f.offset)
        UNROLL for (int i = 0; i < TILE_TOKENS; i++)
            out[i][0] = _mm512_add_epi32(out[i][0], offset_of(f, part, x, TILE_TOKENS, i));
}

TILE_INLINE void dot(struct packed_format f, const struct unpacked *w, int part, const uint8_t *x, int tokens,
                     int first, int count, integers out[TOKENS_AT_ONCE][HALVES])
{
    if (count == TILE_TOKENS)
        dot_tile(f, w, part, x, out);
    else
        UNROLL for (int i = 0; i < count; i++)
            out[i][0] = dot_token(f, w, part, x, tokens, first + i);
}

#include "kernel/x86/linear_tile.h"
#include "kernel/x86/linear_walk.h"

void linear_amx_many(const void *args, int part, int parts)
{
    _tile_loadconfig(&amx_config);
    run_many(args, part, parts);
    _tile_release();
}

void linear_amx_prepare(const void *args, int part, int parts)
{
    prepare_many(args, part, parts);
}
