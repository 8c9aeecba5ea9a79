// SPDX-License-Identifier: Apache-2.0
// kernel/split.h: the table of block-quantised weight formats, and the one decoder of each format's blocks into codes
// and scales. The reference dequantises from it; the packings of x86 and CUDA reorder from it. Codes are handled in
// quads, four at a time, one per byte of a 32-bit word: quad i of a block of 32 is its values 4 i to 4 i + 3.
#ifndef KERNEL_SPLIT_H
#define KERNEL_SPLIT_H

#include "kernel/blocks.h"
#include "kernel/minifloat.h"

enum { SPLIT_SUBS_MAX = 16, SPLIT_BLOCK_MAX = 256, SPLIT_QUADS = 32 / 4 };

// An f16 scale per block, alone or times an 8-bit scale per sub-block; or sub-block scales alone, E8M0 or E4M3.
enum packed_scale { PACKED_F16, PACKED_F16_U8, PACKED_F16_I8, PACKED_E8M0, PACKED_E4M3 };
enum packed_min { PACKED_NO_MIN, PACKED_ADD_F16, PACKED_SUBTRACT_F16_U8 };
enum packed_levels {
    PACKED_CODES,  // code - offset
    PACKED_SIGNED, // two's complement
    PACKED_IQ4,    // a table (kernel/blocks.h)
    PACKED_E2M1,   // twice the value, an integer; scales are halved to match
};

struct packed_format {
    int block, bits, sub; // values of a block, bits of a code, values that share a scale: 16 or 32
    enum packed_scale scale;
    enum packed_min min;
    enum packed_levels levels;
    int offset; // log2 of the offset that makes levels non-negative; 0: they are
};

//    id          block bits sub scale min              levels  offset
// clang-format off
#define PACKED_FORMATS(X)                                                    \
    X(Q4_0,        32,  4,  32, F16,     NO_MIN,          CODES,  3)         \
    X(Q4_1,        32,  4,  32, F16,     ADD_F16,         CODES,  0)         \
    X(Q5_0,        32,  5,  32, F16,     NO_MIN,          CODES,  4)         \
    X(Q5_1,        32,  5,  32, F16,     ADD_F16,         CODES,  0)         \
    X(Q8_0,        32,  8,  32, F16,     NO_MIN,          SIGNED, 7)         \
    X(Q2_K,       256,  2,  16, F16_U8,  SUBTRACT_F16_U8, CODES,  0)         \
    X(Q3_K,       256,  3,  16, F16_I8,  NO_MIN,          CODES,  2)         \
    X(Q4_K,       256,  4,  32, F16_U8,  SUBTRACT_F16_U8, CODES,  0)         \
    X(Q5_K,       256,  5,  32, F16_U8,  SUBTRACT_F16_U8, CODES,  0)         \
    X(Q6_K,       256,  6,  16, F16_I8,  NO_MIN,          CODES,  5)         \
    X(IQ4_NL,      32,  4,  32, F16,     NO_MIN,          IQ4,    7)         \
    X(IQ4_XS,     256,  4,  32, F16_I8,  NO_MIN,          IQ4,    7)         \
    X(MXFP4_GGUF,  32,  4,  32, E8M0,    NO_MIN,          E2M1,   4)         \
    X(NVFP4_GGUF,  64,  4,  16, E4M3,    NO_MIN,          E2M1,   4)
// clang-format on

#define PACKED_FORMAT(block, bits, sub, scale, min, levels, offset) \
    { block, bits, sub, PACKED_##scale, PACKED_##min, PACKED_##levels, offset }

// A decoded block.
struct block_parts {
    uint8_t scale[2], min[2], scales[SPLIT_SUBS_MAX], mins[SPLIT_SUBS_MAX];
    uint32_t quads[SPLIT_BLOCK_MAX / 4];
};

static inline float read_f16(const uint8_t bytes[2]) { return f16_to_f32(read_u16(bytes)); }

// The scale of sub-block s.
static inline float parts_scale(struct packed_format f, const struct block_parts *parts, int s)
{
    switch (f.scale) {
    case PACKED_F16: return read_f16(parts->scale);
    case PACKED_F16_U8: return read_f16(parts->scale) * (float)parts->scales[s];
    case PACKED_F16_I8: return read_f16(parts->scale) * (float)(int8_t)parts->scales[s];
    case PACKED_E8M0: return e8m0_to_f32(parts->scales[s]);
    case PACKED_E4M3: return f32_from_bits(minifloat_expand(parts->scales[s], 3, 7));
    }
    return 0;
}

// The minimum of sub-block s, added to scale * code.
static inline float parts_min(struct packed_format f, const struct block_parts *parts, int s)
{
    switch (f.min) {
    case PACKED_NO_MIN: return 0;
    case PACKED_ADD_F16: return read_f16(parts->min);
    case PACKED_SUBTRACT_F16_U8: return -read_f16(parts->min) * (float)parts->mins[s];
    }
    return 0;
}

static inline uint32_t read_quad(const void *bytes, int index)
{
    uint32_t quad;
    memcpy(&quad, (const uint8_t *)bytes + 4 * index, sizeof quad);
    return quad;
}

// Extracts the same bits of all four bytes.
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
    for (int i = 0; i < SPLIT_QUADS; i++) {
        uint32_t four = bits >> 4 * i & 15;
        quads[i] |= (four * 0x00204081u & 0x01010101u) << 4;
    }
}

static inline void split_Q4_0(const struct Q4_0 *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_Q4_1(const struct Q4_1 *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_Q5_0(const struct Q5_0 *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    split_nibbles(in->codes, 16, out->quads);
    add_fifth_bits(in->high, out->quads);
}

static inline void split_Q5_1(const struct Q5_1 *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_nibbles(in->codes, 16, out->quads);
    add_fifth_bits(in->high, out->quads);
}

static inline void split_Q8_0(const struct Q8_0 *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->quads, in->codes, 32);
}

// 32 bytes hold four runs of 32 values, two bits each.
static inline void split_pairs(const uint8_t codes[64], uint32_t *quads)
{
    for (int i = 0; i < SPLIT_BLOCK_MAX / 4; i++)
        quads[i] = quad_bits(read_quad(codes + i / 32 * 32, i % 8), i % 32 / 8 * 2, 2);
}

static inline void split_Q2_K(const struct Q2_K *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    for (int s = 0; s < 16; s++) {
        out->scales[s] = in->scales[s] & 15;
        out->mins[s] = in->scales[s] >> 4;
    }
    split_pairs(in->codes, out->quads);
}

static inline void split_Q3_K(const struct Q3_K *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    for (int s = 0; s < 16; s++)
        out->scales[s] = (uint8_t)q3_scale(in->scales, s);
    split_pairs(in->codes, out->quads);
    for (int i = 0; i < SPLIT_BLOCK_MAX / 4; i++)
        out->quads[i] |= quad_bits(read_quad(in->high, i % 8), i / 8, 1) << 2;
}

static inline void split_sixes(const uint8_t scales[12], struct block_parts *out)
{
    for (int s = 0; s < 8; s++) {
        out->scales[s] = (uint8_t)q4_scale(scales, s);
        out->mins[s] = (uint8_t)q4_min(scales, s);
    }
}

static inline void split_Q4_K(const struct Q4_K *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_sixes(in->scales, out);
    for (int i = 0; i < 4; i++)
        split_nibbles(in->codes + 32 * i, 32, out->quads + 16 * i);
}

static inline void split_Q5_K(const struct Q5_K *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->min, in->min, 2);
    split_sixes(in->scales, out);
    for (int i = 0; i < 4; i++)
        split_nibbles(in->codes + 32 * i, 32, out->quads + 16 * i);
    for (int i = 0; i < SPLIT_BLOCK_MAX / 4; i++)
        out->quads[i] |= quad_bits(read_quad(in->high, i % 8), i / 8, 1) << 4;
}

// Each half of the block: 64 bytes of nibbles and 32 bytes of high pairs, for four runs of 32 values.
static inline void split_Q6_K(const struct Q6_K *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    memcpy(out->scales, in->scales, 16);
    split_nibbles(in->codes, 64, out->quads);
    split_nibbles(in->codes + 64, 64, out->quads + 32);
    for (int i = 0; i < SPLIT_BLOCK_MAX / 4; i++)
        out->quads[i] |= quad_bits(read_quad(in->high + i / 32 * 32, i % 8), i % 32 / 8 * 2, 2) << 4;
}

static inline void split_IQ4_NL(const struct IQ4_NL *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_IQ4_XS(const struct IQ4_XS *in, struct block_parts *out)
{
    memcpy(out->scale, in->scale, 2);
    for (int s = 0; s < 8; s++) {
        out->scales[s] = (uint8_t)iq4_xs_scale(in, s);
        split_nibbles(in->codes + 16 * s, 16, out->quads + 8 * s);
    }
}

static inline void split_MXFP4_GGUF(const struct MXFP4_GGUF *in, struct block_parts *out)
{
    out->scales[0] = in->scale;
    split_nibbles(in->codes, 16, out->quads);
}

static inline void split_NVFP4_GGUF(const struct NVFP4_GGUF *in, struct block_parts *out)
{
    for (int s = 0; s < 4; s++) {
        out->scales[s] = nvfp4_scale(in, s);
        split_nibbles(in->codes + 8 * s, 8, out->quads + 4 * s);
    }
}

#endif
