// SPDX-License-Identifier: Apache-2.0
// kernel/x86/pack.c: packs weights from file blocks into groups of sixteen rows (packed.h).
#include "kernel/x86/packed.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kernel/ref/weight.h"

enum { FLOAT_TILE = 64 };

static inline void write_codes(struct packed_format f, const uint32_t *quads, int row, uint8_t *out)
{
    for (int bits = f.bits, shift = 0; bits > 0; bits -= packed_plane(bits), shift = f.bits - bits) {
        int plane = packed_plane(bits);
        for (int j = 0; j < plane; j++, out += PACKED_VECTOR) {
            uint32_t word = 0;
            for (int i = j, to = 0; i < PACKED_QUADS; i += plane, to += plane)
                word |= quad_bits(quads[i], shift, plane) << to;
            memcpy(out + 4 * row, &word, sizeof word);
        }
    }
}

static inline void write_row(struct packed_format f, const struct block_parts *parts, int row, uint8_t *record)
{
    if (f.scale <= PACKED_F16_I8)
        memcpy(record + 2 * row, parts->scale, 2);
    if (f.min != PACKED_NO_MIN)
        memcpy(record + packed_min_at(f) + 2 * row, parts->min, 2);
    for (int s = 0; f.scale != PACKED_F16 && s < f.block / f.sub; s++)
        record[packed_small_scales_at(f) + (size_t)(s * PACKED_ROWS + row)] = parts->scales[s];
    for (int s = 0; f.min == PACKED_SUBTRACT_F16_U8 && s < f.block / f.sub; s++)
        record[packed_small_mins_at(f) + (size_t)(s * PACKED_ROWS + row)] = parts->mins[s];
    for (int b = 0; b < f.block / INT8_BLOCK; b++)
        write_codes(f, parts->quads + b * PACKED_QUADS, row,
                    record + packed_codes_at(f) + (size_t)b * packed_codes_bytes(f));
}

// Packs `rows` rows of `cols` values, at most sixteen.
#define X(id, ...)                                                                                              \
    static const struct packed_format format_##id = PACKED_FORMAT(__VA_ARGS__);                                 \
    static void pack_##id(const uint8_t *in, int rows, int cols, uint8_t *out)                                  \
    {                                                                                                           \
        int blocks = cols / format_##id.block;                                                                  \
        for (int block = 0; block < blocks; block++, out += packed_record_bytes(format_##id))                   \
            for (int row = 0; row < rows; row++) {                                                              \
                struct block_parts parts;                                                                       \
                split_##id((const struct id *)(const void *)in + (size_t)row * (size_t)blocks + block, &parts); \
                write_row(format_##id, &parts, row, out);                                                       \
            }                                                                                                   \
    }
PACKED_FORMATS(X)
#undef X

// A transposition in tiles of columns, so that the sixteen rows stay in cache.
#define X(id)                                                                                                     \
    static void pack_##id(const uint8_t *in, int rows, int cols, uint8_t *out)                                    \
    {                                                                                                             \
        const struct id *from = (const void *)in;                                                                 \
        struct id *to = (void *)out;                                                                              \
        for (int first = 0; first < cols; first += FLOAT_TILE)                                                    \
            for (int row = 0; row < rows; row++)                                                                  \
                for (int col = first; col < cols && col < first + FLOAT_TILE; col++)                              \
                    to[(size_t)col * PACKED_ROWS + (size_t)row] = from[(size_t)row * (size_t)cols + (size_t)col]; \
    }
PACKED_PLAIN(X)
#undef X

static void pack_FP8_32(const uint8_t *in, int rows, int cols, uint8_t *out)
{
    int blocks = cols / (2 * FP8_RUN);
    for (int block = 0; block < blocks; block++, out += FP8_RECORD_BYTES)
        for (int row = 0; row < rows; row++) {
            const struct FP8_32 *from = (const struct FP8_32 *)(const void *)in + (size_t)row * (size_t)blocks + block;
            uint8_t *to = out + FP8_SCALES_BYTES + 2 * row;
            memcpy(out + 4 * row, &(float){ fp8_scale(from) * 256 }, sizeof(float));
            for (int k = 0; k < FP8_RUN; k++, to += 2 * PACKED_ROWS) {
                to[0] = from->codes[k];
                to[1] = from->codes[k + FP8_RUN];
            }
        }
}

static const struct {
    const struct packed_format *format; // NULL: floats, as many bytes as in the file
    void (*pack)(const uint8_t *in, int rows, int cols, uint8_t *out);
} packers[DTYPE_COUNT] = {
#define X(id, ...) [DTYPE_##id] = { &format_##id, pack_##id },
    PACKED_FORMATS(X)
#undef X
#define X(id) [DTYPE_##id] = { NULL, pack_##id },
        PACKED_FLOATS(X)
#undef X
};

size_t packed_group_bytes(enum dtype dtype, int cols)
{
    const struct packed_format *format = packers[dtype].format;
    assert(packers[dtype].pack);
    return format ? (size_t)(cols / format->block) * packed_record_bytes(*format)
                  : dtype_bytes(dtype, (size_t)cols * PACKED_ROWS);
}

static int group_count(int rows) { return (rows + PACKED_ROWS - 1) / PACKED_ROWS; }

static size_t packed_bytes(enum dtype dtype, int rows, int cols)
{
    return (size_t)group_count(rows) * packed_group_bytes(dtype, cols);
}

static void pack_chunk(const struct weight *weight, int chunk, int chunks, void *out)
{
    size_t row_bytes = dtype_bytes(weight->dtype, (size_t)weight->cols);
    size_t group_bytes = packed_group_bytes(weight->dtype, weight->cols);
    int first, end;
    kernel_range(group_count(weight->rows), chunk, chunks, &first, &end);
    for (int group = first; group < end; group++) {
        int row = group * PACKED_ROWS, rows = weight->rows - row;
        uint8_t *to = (uint8_t *)out + (size_t)group * group_bytes;
        if (rows < PACKED_ROWS)
            memset(to, 0, group_bytes);
        packers[weight->dtype].pack((const uint8_t *)weight->data + (size_t)row * row_bytes,
                                    rows < PACKED_ROWS ? rows : PACKED_ROWS, weight->cols, to);
    }
}

const struct kernel_packing x86_packing = { .name = "x86", .bytes = packed_bytes, .pack = pack_chunk };
