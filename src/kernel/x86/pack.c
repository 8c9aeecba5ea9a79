// SPDX-License-Identifier: Apache-2.0
// kernel/x86/pack.c: from blocks as files have them to groups of sixteen rows. Codes are handled four at a time, a
// quad, one per byte of a 32-bit word: quad i of a block of 32 is its values 4 i to 4 i + 3.
#include "kernel/x86/packed.h"

#include <assert.h>

#include "kernel/blocks.h"

enum { SUBS_MAX = 16, FLOAT_TILE = 64 };

// What sixteen rows of a record are made from: one row's part.
struct row_parts {
    uint8_t scale[2], min[2], scales[SUBS_MAX], mins[SUBS_MAX];
    uint32_t quads[PACKED_BLOCK_MAX / 4];
};

static inline uint32_t read_quad(const void *bytes, int index)
{
    uint32_t quad;
    memcpy(&quad, (const uint8_t *)bytes + 4 * index, sizeof quad);
    return quad;
}

// The same bits of four bytes.
static inline uint32_t quad_bits(uint32_t quad, int shift, int bits)
{
    return quad >> shift & (0xFFu >> (8 - bits)) * 0x01010101u;
}

// `count` bytes of nibbles: the low ones first, then the high ones.
static inline void split_nibbles(const uint8_t *codes, int count, uint32_t *quads)
{
    for (int i = 0; i < count / 4; i++) {
        quads[i] = quad_bits(read_quad(codes, i), 0, 4);
        quads[i + count / 4] = quad_bits(read_quad(codes, i), 4, 4);
    }
}

// Bit i of `high` is the fifth bit of code i.
static inline void add_fifth_bits(const uint8_t high[4], uint32_t *quads)
{
    uint32_t bits = read_quad(high, 0);
    for (int i = 0; i < PACKED_QUADS; i++) {
        uint32_t four = bits >> 4 * i & 15;
        quads[i] |= (four * 0x00204081u & 0x01010101u) << 4;
    }
}

static inline void split_Q4_0(const struct Q4_0 *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_Q4_1(const struct Q4_1 *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_Q5_0(const struct Q5_0 *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    split_nibbles(in->codes, 16, out->quads);
    add_fifth_bits(in->high, out->quads);
}

static inline void split_Q5_1(const struct Q5_1 *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_nibbles(in->codes, 16, out->quads);
    add_fifth_bits(in->high, out->quads);
}

static inline void split_Q8_0(const struct Q8_0 *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->quads, in->codes, 32);
}

// 32 bytes hold four runs of 32 values, two bits each.
static inline void split_pairs(const uint8_t codes[64], uint32_t *quads)
{
    for (int i = 0; i < PACKED_BLOCK_MAX / 4; i++)
        quads[i] = quad_bits(read_quad(codes + i / 32 * 32, i % 8), i % 32 / 8 * 2, 2);
}

static inline void split_Q2_K(const struct Q2_K *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    for (int s = 0; s < 16; s++) {
        out->scales[s] = in->scales[s] & 15;
        out->mins[s] = in->scales[s] >> 4;
    }
    split_pairs(in->codes, out->quads);
}

static inline void split_Q3_K(const struct Q3_K *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    for (int s = 0; s < 16; s++)
        out->scales[s] = (uint8_t)q3_scale(in->scales, s);
    split_pairs(in->codes, out->quads);
    for (int i = 0; i < PACKED_BLOCK_MAX / 4; i++)
        out->quads[i] |= quad_bits(read_quad(in->high, i % 8), i / 8, 1) << 2;
}

static inline void split_sixes(const uint8_t scales[12], struct row_parts *out)
{
    for (int s = 0; s < 8; s++) {
        out->scales[s] = (uint8_t)q4_scale(scales, s);
        out->mins[s] = (uint8_t)q4_min(scales, s);
    }
}

static inline void split_Q4_K(const struct Q4_K *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_sixes(in->scales, out);
    for (int i = 0; i < 4; i++)
        split_nibbles(in->codes + 32 * i, 32, out->quads + 16 * i);
}

static inline void split_Q5_K(const struct Q5_K *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_sixes(in->scales, out);
    for (int i = 0; i < 4; i++)
        split_nibbles(in->codes + 32 * i, 32, out->quads + 16 * i);
    for (int i = 0; i < PACKED_BLOCK_MAX / 4; i++)
        out->quads[i] |= quad_bits(read_quad(in->high, i % 8), i / 8, 1) << 4;
}

// Each half of the block: 64 bytes of nibbles and 32 bytes of high pairs, for four runs of 32 values.
static inline void split_Q6_K(const struct Q6_K *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->scales, in->scales, 16);
    split_nibbles(in->codes, 64, out->quads);
    split_nibbles(in->codes + 64, 64, out->quads + 32);
    for (int i = 0; i < PACKED_BLOCK_MAX / 4; i++)
        out->quads[i] |= quad_bits(read_quad(in->high + i / 32 * 32, i % 8), i % 32 / 8 * 2, 2) << 4;
}

static inline void split_IQ4_NL(const struct IQ4_NL *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_IQ4_XS(const struct IQ4_XS *in, struct row_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    for (int s = 0; s < 8; s++) {
        out->scales[s] = (uint8_t)iq4_xs_scale(in, s);
        split_nibbles(in->codes + 16 * s, 16, out->quads + 8 * s);
    }
}

static inline void split_MXFP4_GGUF(const struct MXFP4_GGUF *in, struct row_parts *out)
{
    out->scales[0] = in->scale;
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_NVFP4_GGUF(const struct NVFP4_GGUF *in, struct row_parts *out)
{
    for (int s = 0; s < 4; s++) {
        out->scales[s] = nvfp4_scale(in, s);
        split_nibbles(in->codes + 8 * s, 8, out->quads + 4 * s);
    }
}

// ---- writing ----

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

static inline void write_row(struct packed_format f, const struct row_parts *parts, int row, uint8_t *record)
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
#define X(id, ...)                                                                                   \
    static const struct packed_format format_##id = PACKED_FORMAT(__VA_ARGS__);                      \
    static void pack_##id(const uint8_t *in, int rows, int cols, uint8_t *out)                       \
    {                                                                                                \
        int blocks = cols / format_##id.block;                                                       \
        for (int block = 0; block < blocks; block++, out += packed_record_bytes(format_##id))        \
            for (int row = 0; row < rows; row++) {                                                   \
                struct row_parts parts;                                                              \
                split_##id((const struct id *)(const void *)in + (size_t)row * (size_t)blocks + block, &parts); \
                write_row(format_##id, &parts, row, out);                                            \
            }                                                                                        \
    }
PACKED_FORMATS(X)
#undef X

// A tile of columns at a time, so that what sixteen rows have read stays in the cache.
#define X(id)                                                                                            \
    static void pack_##id(const uint8_t *in, int rows, int cols, uint8_t *out)                           \
    {                                                                                                    \
        const struct id *from = (const void *)in;                                                        \
        struct id *to = (void *)out;                                                                     \
        for (int first = 0; first < cols; first += FLOAT_TILE)                                           \
            for (int row = 0; row < rows; row++)                                                         \
                for (int col = first; col < cols && col < first + FLOAT_TILE; col++)                     \
                    to[(size_t)col * PACKED_ROWS + (size_t)row] = from[(size_t)row * (size_t)cols + (size_t)col]; \
    }
PACKED_FLOATS(X)
#undef X

static const struct {
    const struct packed_format *format; // NULL: floats
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

static int group_count(int rows)
{
    return (rows + PACKED_ROWS - 1) / PACKED_ROWS;
}

static size_t packed_bytes(enum dtype dtype, int rows, int cols)
{
    return (size_t)group_count(rows) * packed_group_bytes(dtype, cols);
}

static void pack_share(const struct weight *weight, int part, int parts, void *out)
{
    size_t row_bytes = dtype_bytes(weight->dtype, (size_t)weight->cols);
    size_t group_bytes = packed_group_bytes(weight->dtype, weight->cols);
    int first, end;
    kernel_share(group_count(weight->rows), part, parts, &first, &end);
    for (int group = first; group < end; group++) {
        int row = group * PACKED_ROWS, rows = weight->rows - row;
        uint8_t *to = (uint8_t *)out + (size_t)group * group_bytes;
        if (rows < PACKED_ROWS)
            memset(to, 0, group_bytes);
        packers[weight->dtype].pack((const uint8_t *)weight->data + (size_t)row * row_bytes,
                                    rows < PACKED_ROWS ? rows : PACKED_ROWS, weight->cols, to);
    }
}

const struct kernel_packing x86_packing = { .name = "x86", .bytes = packed_bytes, .pack = pack_share };
