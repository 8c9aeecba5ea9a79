// SPDX-License-Identifier: Apache-2.0
// Each format is a struct (kernel/blocks.h) and a function that dequantises one block: for block-quantised formats it
// follows from the table of kernel/split.h.
#include "kernel/ref/weight.h"

#include <assert.h>

#include "kernel/split.h"

static const float iq4_levels[16] = { IQ4_LEVELS };

static inline void block_F32(const struct F32 *restrict in, float *restrict out)
{
    memcpy(out, in->value, sizeof *out);
}

static inline void block_F16(const struct F16 *restrict in, float *restrict out) { *out = read_f16(in->value); }

static inline void block_BF16(const struct BF16 *restrict in, float *restrict out)
{
    *out = bf16_to_f32(read_u16(in->value));
}

static inline float level_of(struct packed_format f, uint8_t code)
{
    return f.levels == PACKED_IQ4   ? iq4_levels[code]
        : f.levels == PACKED_E2M1   ? e2m1_to_f32(code)
        : f.levels == PACKED_SIGNED ? (float)(int8_t)code
                                    : (float)(code - (f.offset ? 1 << f.offset : 0));
}

// One code per byte first, then a plain loop per sub-block, which compilers vectorise best.
static inline __attribute__((always_inline)) void dequantise(struct packed_format f, const struct block_parts *parts,
                                                             float *restrict out)
{
    uint8_t codes[SPLIT_BLOCK_MAX];
    memcpy(codes, parts->quads, (size_t)f.block);
    for (int s = 0; s < f.block / f.sub; s++) {
        float scale = parts_scale(f, parts, s), min = parts_min(f, parts, s);
        for (int i = s * f.sub; i < (s + 1) * f.sub; i++)
            out[i] = f.min ? scale * level_of(f, codes[i]) + min : scale * level_of(f, codes[i]);
    }
}

#define X(id, ...)                                                                   \
    static inline void block_##id(const struct id *restrict in, float *restrict out) \
    {                                                                                \
        struct block_parts parts;                                                    \
        split_##id(in, &parts);                                                      \
        dequantise((struct packed_format)PACKED_FORMAT(__VA_ARGS__), &parts, out);   \
    }
PACKED_FORMATS(X)
#undef X

static inline void block_FP8_32(const struct FP8_32 *restrict in, float *restrict out)
{
    float scale;
    memcpy(&scale, in->scale, sizeof scale);
    for (int i = 0; i < 32; i++)
        out[i] = scale * e4m3_to_f32(in->codes[i]);
}

// A weight format of dtype.h without a block above, or with a block of another size, does not compile.
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
