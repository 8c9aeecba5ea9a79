// SPDX-License-Identifier: Apache-2.0
// Each format is a struct (kernel/blocks.h) and a function that decodes one block.
#include "kernel/ref/weight.h"

#include <assert.h>

#include "kernel/blocks.h"
#include "kernel/minifloat.h"

static const float iq4_levels[16] = { IQ4_LEVELS };

static inline float read_f16(const uint8_t bytes[2]) { return f16_to_f32(read_u16(bytes)); }

static inline void block_F32(const struct F32 *restrict in, float *restrict out)
{
    memcpy(out, in->value, sizeof *out);
}

static inline void block_F16(const struct F16 *restrict in, float *restrict out) { *out = read_f16(in->value); }

static inline void block_BF16(const struct BF16 *restrict in, float *restrict out)
{
    *out = bf16_to_f32(read_u16(in->value));
}

// One code per byte first, then one plain loop over whole blocks: compilers vectorise that best.
static inline void dequantise_nibbles(const uint8_t *restrict packed, int count, uint8_t *restrict codes)
{
    for (int i = 0; i < count / 2; i++) {
        codes[i] = packed[i] & 15;
        codes[i + count / 2] = packed[i] >> 4;
    }
}

static inline void block_Q4_0(const struct Q4_0 *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale);
    uint8_t codes[32];
    dequantise_nibbles(in->codes, 32, codes);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(codes[i] - 8);
}

static inline void block_Q4_1(const struct Q4_1 *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale), min = read_f16(in->min);
    uint8_t codes[32];
    dequantise_nibbles(in->codes, 32, codes);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)codes[i] + min;
}

// Bit i of `high` is the fifth bit of code i. Vector units of every age can mask by a table, few can shift by lane.
static inline void dequantise_fives(const uint8_t packed[16], const uint8_t high[4], int32_t *restrict codes)
{
    static const uint32_t bits[32] = {
        1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
        1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
        1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
    };
    uint32_t mask;
    memcpy(&mask, high, sizeof mask);
    uint8_t low[32];
    dequantise_nibbles(packed, 32, low);
    for (int i = 0; i < 32; i++)
        codes[i] = low[i] + (mask & bits[i] ? 16 : 0);
}

static inline void block_Q5_0(const struct Q5_0 *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale);
    int32_t codes[32];
    dequantise_fives(in->codes, in->high, codes);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(codes[i] - 16);
}

static inline void block_Q5_1(const struct Q5_1 *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale), min = read_f16(in->min);
    int32_t codes[32];
    dequantise_fives(in->codes, in->high, codes);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)codes[i] + min;
}

static inline void block_Q8_0(const struct Q8_0 *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)in->codes[i];
}

// Q2_K and Q3_K: 32 bytes hold 128 values, two bits each: sub-block s of 16 values sits in 16 bytes at one shift.
static inline int two_bit_start(int s) { return s / 8 * 32 + s % 2 * 16; }
static inline int two_bit_shift(int s) { return s % 8 / 2 * 2; }

static inline void block_Q2_K(const struct Q2_K *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale), min = read_f16(in->min);
    for (int s = 0; s < 16; s++) {
        const uint8_t *codes = in->codes + two_bit_start(s);
        int shift = two_bit_shift(s);
        float sub_scale = scale * (float)(in->scales[s] & 15), sub_min = min * (float)(in->scales[s] >> 4);
        for (int i = 0; i < 16; i++)
            out[s * 16 + i] = sub_scale * (float)(codes[i] >> shift & 3) - sub_min;
    }
}

static inline void block_Q3_K(const struct Q3_K *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale);
    for (int s = 0; s < 16; s++) {
        const uint8_t *codes = in->codes + two_bit_start(s), *high = in->high + s % 2 * 16;
        int shift = two_bit_shift(s);
        float sub_scale = scale * (float)q3_scale(in->scales, s);
        for (int i = 0; i < 16; i++)
            out[s * 16 + i] = sub_scale * (float)((codes[i] >> shift & 3) + (high[i] >> s / 2 & 1) * 4 - 4);
    }
}

static inline void block_Q4_K(const struct Q4_K *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale), min = read_f16(in->min);
    for (int s = 0; s < 8; s++) {
        const uint8_t *codes = in->codes + s / 2 * 32;
        int shift = s % 2 * 4;
        float sub_scale = scale * (float)q4_scale(in->scales, s), sub_min = min * (float)q4_min(in->scales, s);
        for (int i = 0; i < 32; i++)
            out[s * 32 + i] = sub_scale * (float)(codes[i] >> shift & 15) - sub_min;
    }
}

static inline void block_Q5_K(const struct Q5_K *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale), min = read_f16(in->min);
    for (int s = 0; s < 8; s++) {
        const uint8_t *codes = in->codes + s / 2 * 32;
        int shift = s % 2 * 4;
        float sub_scale = scale * (float)q4_scale(in->scales, s), sub_min = min * (float)q4_min(in->scales, s);
        for (int i = 0; i < 32; i++)
            out[s * 32 + i] = sub_scale * (float)((codes[i] >> shift & 15) + (in->high[i] >> s & 1) * 16) - sub_min;
    }
}

// Each half of the block: 64 bytes of low nibbles and 32 bytes of high pairs, for four runs of 32 values.
static inline void block_Q6_K(const struct Q6_K *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale);
    for (int s = 0; s < 16; s++) {
        int half = s / 8, run = s % 8 / 2, first = s % 2 * 16;
        const uint8_t *codes = in->codes + half * 64 + run % 2 * 32 + first, *high = in->high + half * 32 + first;
        float sub_scale = scale * (float)in->scales[s];
        for (int i = 0; i < 16; i++) {
            int code = (codes[i] >> run / 2 * 4 & 15) | (high[i] >> run * 2 & 3) << 4;
            out[s * 16 + i] = sub_scale * (float)(code - 32);
        }
    }
}

static inline void decode_levels(const uint8_t codes[16], float scale, float *restrict out)
{
    for (int i = 0; i < 16; i++) {
        out[i] = scale * iq4_levels[codes[i] & 15];
        out[i + 16] = scale * iq4_levels[codes[i] >> 4];
    }
}

static inline void block_IQ4_NL(const struct IQ4_NL *restrict in, float *restrict out)
{
    decode_levels(in->codes, read_f16(in->scale), out);
}

static inline void block_IQ4_XS(const struct IQ4_XS *restrict in, float *restrict out)
{
    float scale = read_f16(in->scale);
    for (int s = 0; s < 8; s++)
        decode_levels(in->codes + s * 16, scale * (float)iq4_xs_scale(in, s), out + s * 32);
}

static inline void block_MXFP4_GGUF(const struct MXFP4_GGUF *restrict in, float *restrict out)
{
    float scale = e8m0_to_f32(in->scale);
    for (int i = 0; i < 16; i++) {
        out[i] = scale * e2m1_to_f32(in->codes[i] & 15);
        out[i + 16] = scale * e2m1_to_f32(in->codes[i] >> 4);
    }
}

static inline void block_NVFP4_GGUF(const struct NVFP4_GGUF *restrict in, float *restrict out)
{
    for (int s = 0; s < 4; s++, out += 16) {
        const uint8_t *codes = in->codes + s * 8;
        float scale = f32_from_bits(minifloat_expand(nvfp4_scale(in, s), 3, 7));
        for (int i = 0; i < 8; i++) {
            out[i] = scale * e2m1_to_f32(codes[i] & 15);
            out[i + 8] = scale * e2m1_to_f32(codes[i] >> 4);
        }
    }
}

static inline void block_FP8_32(const struct FP8_32 *restrict in, float *restrict out)
{
    float scale;
    memcpy(&scale, in->scale, sizeof scale);
    for (int i = 0; i < 32; i++)
        out[i] = scale * e4m3_to_f32(in->codes[i]);
}

// A row of dtype.h that is read as weights and has no block above, or one of another size, does not compile.
#define DECODER_NONE(id, block, bytes)
#define DECODER_KV(id, block, bytes)
#define DECODER_LATENT(id, block, bytes)
#define DECODER_W_KV(id, block, bytes) DECODER_W(id, block, bytes)
#define DECODER_W(id, block, bytes)                                                                        \
    _Static_assert(sizeof(struct id) == (bytes) && _Alignof(struct id) == 1, #id " is bytes, no padding"); \
    static void decode_##id(const void *restrict blocks, size_t values, float *restrict out)               \
    {                                                                                                      \
        const struct id *in = blocks;                                                                      \
        for (size_t i = 0; i < values / (block); i++)                                                      \
            block_##id(in + i, out + i * (block));                                                         \
    }
#define X(id, word, use, bits, block, bytes, ...) DECODER_##use(id, block, bytes)
DTYPES(X)
#undef X

#define ROW_NONE(id)
#define ROW_KV(id)
#define ROW_LATENT(id)
#define ROW_W(id) [DTYPE_##id] = decode_##id,
#define ROW_W_KV(id) ROW_W(id)
static void (*const weight_decoders[DTYPE_COUNT])(const void *blocks, size_t values, float *out) = {
#define X(id, word, use, ...) ROW_##use(id)
    DTYPES(X)
#undef X
};

void weight_decode(enum dtype dtype, const void *blocks, size_t values, float *out)
{
    assert(weight_decoders[dtype] && values % (size_t)dtype_table[dtype].block == 0);
    weight_decoders[dtype](blocks, values, out);
}
