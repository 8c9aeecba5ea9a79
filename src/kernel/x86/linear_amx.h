// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_amx.h: the int8 GEMM micro-kernel with AMX, for sixteen tokens. The tiles are: activation codes (16
// tokens), weights (four k of sixteen rows per tile row), and their dot products. Remaining tokens, formats with
// sub-blocks of 16, and floats use the AVX-512 kernels.
#ifndef KERNEL_X86_LINEAR_AMX_H
#define KERNEL_X86_LINEAR_AMX_H

// Tile numbers; macros, since some compilers need literals.
#define DOTS 0
#define ACTIVATIONS 1
#define WEIGHTS 2

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct amx_config) == 64, "as the processor reads it");

static const struct amx_config amx_config = {
    .palette = 1,
    .row_bytes = { [DOTS] = PACKED_VECTOR, [ACTIVATIONS] = INT8_BLOCK, [WEIGHTS] = PACKED_VECTOR },
    .rows = { [DOTS] = TILE_TOKENS, [ACTIVATIONS] = TILE_TOKENS, [WEIGHTS] = PACKED_QUADS },
};

// Blocks of 32 k are dequantised, multiplied and scaled several at a time, to overlap the latency of tile loads and
// stores.
enum { BLOCKS_AT_ONCE = PACKED_BLOCK_MAX / INT8_BLOCK };

struct amx_room {
    struct dequantised dequantised[BLOCKS_AT_ONCE];
    ivec dots[TILE_PLANES_MAX][BLOCKS_AT_ONCE][TILE_TOKENS];
};

// Compilers do not know that tile intrinsics read and write memory.
ALWAYS_INLINE void settle_memory(void) { __asm__ volatile("" ::: "memory"); }

// The dot products of `blocks` blocks, starting in record w.
ALWAYS_INLINE void multiply_blocks(struct packed_format f, const uint8_t *w, struct tile x, int blocks,
                                   struct amx_room *room)
{
    int in_record = f.block / INT8_BLOCK;
    for (int i = 0; i < blocks; i++) {
        const uint8_t *codes = w + (size_t)(i / in_record) * packed_record_bytes(f) + packed_codes_at(f);
        room->dequantised[i] = dequantise(f, codes + (size_t)(i % in_record) * packed_codes_bytes(f), 0);
    }
    settle_memory();
    for (int i = 0; i < blocks; i++, x.block += TILE_TOKENS * tile_integer_bytes(x.planes)) {
        _tile_loadd(WEIGHTS, &room->dequantised[i], PACKED_VECTOR);
        UNROLL for (int plane = 0; plane < x.planes; plane++)
        {
            _tile_zero(DOTS);
            _tile_loadd(ACTIVATIONS, tile_quad(x, plane, 0, 0), INT8_BLOCK);
            _tile_dpbsud(DOTS, ACTIVATIONS, WEIGHTS);
            _tile_stored(DOTS, room->dots[plane][i], PACKED_VECTOR);
        }
    }
    settle_memory();
}

ALWAYS_INLINE void amx_tile(struct packed_format f, const uint8_t *w, struct tile x, int in, float *out)
{
    struct amx_room room;
    vec sums[TILE_TOKENS][HALVES];
    int in_record = f.block / INT8_BLOCK;
    UNROLL for (int i = 0; i < TILE_TOKENS; i++) sums[i][0] = vec_set(0);
    for (int left = in / INT8_BLOCK, blocks; left > 0; left -= blocks) {
        blocks = left < BLOCKS_AT_ONCE ? left : BLOCKS_AT_ONCE;
        multiply_blocks(f, w, x, blocks, &room);
        for (int i = 0; i < blocks; i++, x.block += TILE_TOKENS * tile_integer_bytes(x.planes)) {
            struct shared shared = shared_of(f, w, i % in_record);
            UNROLL for (int t = 0; t < TILE_TOKENS; t++)
            {
                ivec dot = room.dots[x.planes - 1][i][t];
                if (x.planes == TILE_INT16)
                    dot = ivec_add(dot, ivec_left(room.dots[0][i][t], INT16_SHIFT));
                if (f.offset)
                    dot = ivec_add(dot, offset_of(f, 0, x, t));
                add_dot(f, &shared, 0, x, t, &dot, sums[t]);
            }
            if (i % in_record == in_record - 1)
                w += packed_record_bytes(f);
        }
    }
    store_sums(TILE_TOKENS, sums, out);
}

// Sub-blocks of 16 fill a quarter of a tile only: AVX-512 is faster.
ALWAYS_INLINE void any_integer_tile(struct packed_format f, const uint8_t *w, struct tile x, int in, float *out)
{
    if (x.tokens == TILE_TOKENS && f.sub == INT8_BLOCK)
        amx_tile(f, w, x, in, out);
    else
        integer_tile(f, w, x, in, out);
}

static bool uses_tiles(uint64_t weights, int tokens)
{
#define X(id, block, bits, sub, ...) | (sub == INT8_BLOCK ? DTYPE_BIT(id) : 0)
    const uint64_t formats = 0 PACKED_FORMATS(X);
#undef X
    return weights & formats && tokens >= TILE_TOKENS;
}

// Tiles are configured only while in use, since the kernel must save them on context switches.
bool ISA_NAME(linear_begin)(uint64_t formats, int tokens)
{
    bool begun = uses_tiles(formats, tokens);
    if (begun)
        _tile_loadconfig(&amx_config);
    return begun;
}

void ISA_NAME(linear_end)(bool begun)
{
    if (begun)
        _tile_release();
}

#endif
