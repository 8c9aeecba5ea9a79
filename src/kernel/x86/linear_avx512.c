// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_avx512.c: linear with 512-bit vectors and VNNI.
#include <assert.h>

#include "kernel/x86/linear_vectors_avx512.h"

enum { TILE_TOKENS = 16, TOKENS_AT_ONCE = 1, TILE_WIDTH_COUNT = 5 };
#define TILE_WIDTHS(M, id) M(id, 1) M(id, 2) M(id, 4) M(id, 8) M(id, 16)
#define TILE_WIDTHS_WITH(M, id, ...) \
    M(id, 1, __VA_ARGS__) M(id, 2, __VA_ARGS__) M(id, 4, __VA_ARGS__) M(id, 8, __VA_ARGS__) M(id, 16, __VA_ARGS__)

TILE_INLINE void dot(struct packed_format f, const struct unpacked *w, int part, const uint8_t *x, int tokens,
                     int first, int count, integers out[TOKENS_AT_ONCE][HALVES])
{
    (void)count;
    out[0][0] = dot_token(f, w, part, x, tokens, first);
}

#include "kernel/x86/linear_tile.h"
#define any_int8_tile int8_tile
#include "kernel/x86/linear_walk.h"

void linear_avx512_few(const void *args, int part, int parts)
{
    run_few(args, part, parts);
}

void linear_avx512_many(const void *args, int part, int parts)
{
    run_many(args, part, parts);
}

void linear_avx512_prepare(const void *args, int part, int parts)
{
    prepare_many(args, part, parts);
}
