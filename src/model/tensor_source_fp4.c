// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_fp4.c: converts published NVFP4 and MXFP4 tensors to GGUF-style blocks. Checkpoints store two
// neighbours in a byte, the even one low, and scales in a separate tensor; blocks store the two halves of a group in a
// byte.
#include "kernel/blocks.h"
#include "kernel/minifloat.h"
#include "model/weight_layout.h"

enum { NVFP4_GROUP = 16, MXFP4_GROUP = 32, E4M3_NAN = 0x7F, E4M3_MINUS_ZERO = 0x80, E8M0_NAN = 0xFF };

// Expands eight nibbles to eight bytes.
static uint64_t spread(uint64_t nibbles)
{
    nibbles = (nibbles | nibbles << 16) & 0x0000FFFF0000FFFF;
    nibbles = (nibbles | nibbles << 8) & 0x00FF00FF00FF00FF;
    return (nibbles | nibbles << 4) & 0x0F0F0F0F0F0F0F0F;
}

// Stores sixteen codes, the first eight in low nibbles.
static void write_halves(uint32_t low, uint32_t high, uint8_t out[8])
{
    uint64_t both = spread(low) | spread(high) << 4;
    memcpy(out, &both, sizeof both);
}

static uint32_t read_eight(const uint8_t *codes)
{
    uint32_t eight;
    memcpy(&eight, codes, sizeof eight);
    return eight;
}

static const uint8_t *row_of(const struct tensor *tensor, const struct tensor *part, int64_t row, int64_t values_each)
{
    int64_t source = tensor->source->row_first + row * tensor->source->row_step;
    return (const uint8_t *)part->data + (size_t)(source * (tensor_cols(tensor) / values_each));
}

static void read_nvfp4(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    struct NVFP4_GGUF *block = out;
    int64_t blocks = tensor_cols(tensor) / 64;
    for (int64_t row = first; row < first + count; row++) {
        const uint8_t *codes = row_of(tensor, tensor->source->codes, row, 2);
        const uint8_t *scales = row_of(tensor, tensor->source->scales, row, NVFP4_GROUP);
        for (int64_t i = 0; i < blocks; i++, block++, codes += 32, scales += 4) {
            memcpy(block->scales, scales, 4);
            for (int byte = 0; byte < 32; byte += NVFP4_GROUP / 2)
                write_halves(read_eight(codes + byte), read_eight(codes + byte + 4), block->codes + byte);
        }
    }
}

// f16 holds every NVFP4 value exactly.
static void read_nvfp4_as_f16(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    uint16_t *value = out;
    for (int64_t row = first; row < first + count; row++) {
        const uint8_t *codes = row_of(tensor, tensor->source->codes, row, 2);
        const uint8_t *scales = row_of(tensor, tensor->source->scales, row, NVFP4_GROUP);
        for (int64_t col = 0; col < tensor_cols(tensor); col++)
            *value++ = f32_to_f16(e2m1_to_f32((uint8_t)(codes[col / 2] >> col % 2 * 4))
                                  * e4m3_to_f32(scales[col / NVFP4_GROUP]));
    }
}

static void read_mxfp4(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    struct MXFP4_GGUF *block = out;
    int64_t blocks = tensor_cols(tensor) / MXFP4_GROUP;
    for (int64_t row = first; row < first + count; row++) {
        const uint8_t *codes = row_of(tensor, tensor->source->codes, row, 2);
        const uint8_t *scales = row_of(tensor, tensor->source->scales, row, MXFP4_GROUP);
        for (int64_t i = 0; i < blocks; i++, block++, codes += 16) {
            block->scale = scales[i];
            write_halves(read_eight(codes), read_eight(codes + 8), block->codes);
            write_halves(read_eight(codes + 4), read_eight(codes + 12), block->codes + 8);
        }
    }
}

static bool check_nvfp4(const struct tensor *tensor, struct error *err)
{
    const struct tensor *scales = tensor->source->scales;
    for (size_t i = 0; i < scales->bytes; i++) {
        uint8_t code = (uint8_t)scales->data[i];
        if (code == E4M3_NAN || code > E4M3_MINUS_ZERO)
            return fail(err, "tensor %s holds %g at %zu; scales of blocks are not negative, so the file is damaged",
                        scales->name, (double)e4m3_to_f32(code), i);
    }
    return true;
}

static bool check_mxfp4(const struct tensor *tensor, struct error *err)
{
    const struct tensor *scales = tensor->source->scales;
    const char *nan = memchr(scales->data, E8M0_NAN, scales->bytes);
    return !nan
        || fail(err, "tensor %s holds NaN at %zu; the file is damaged", scales->name, (size_t)(nan - scales->data));
}

static enum dtype resolve_nvfp4(const struct scheme *scheme, int64_t cols, struct tensor_source *source)
{
    (void)scheme;
    source->check = check_nvfp4;
    source->read = cols % 64 ? read_nvfp4_as_f16 : read_nvfp4;
    source->why = cols % 64 ? "rows are no multiple of 64" : NULL;
    return cols % 64 ? DTYPE_F16 : DTYPE_NVFP4_GGUF;
}

static enum dtype resolve_mxfp4(const struct scheme *scheme, int64_t cols, struct tensor_source *source)
{
    (void)scheme;
    (void)cols;
    source->check = check_mxfp4;
    source->read = read_mxfp4;
    return DTYPE_MXFP4_GGUF;
}

#define SCALES { LAYOUT_N_SCALES, LAYOUT_K_SCALES }

const struct weight_layout weight_layout_nvfp4_modelopt = {
    .part = { [LAYOUT_CODES] = { "weight", DTYPE_BIT(U8), { LAYOUT_N, LAYOUT_K_WORDS } },
              [LAYOUT_SCALES] = { "weight_scale", DTYPE_BIT(FP8_E4M3), SCALES },
              [LAYOUT_OVERALL] = { "weight_scale_2", LAYOUT_FLOATS, { LAYOUT_ONE } } },
    .multiple = NVFP4_GROUP,
    .resolve = resolve_nvfp4,
};
const struct weight_layout weight_layout_nvfp4_compressed = {
    .part = { [LAYOUT_CODES] = { "weight_packed", DTYPE_BIT(U8), { LAYOUT_N, LAYOUT_K_WORDS } },
              [LAYOUT_SCALES] = { "weight_scale", DTYPE_BIT(FP8_E4M3), SCALES },
              [LAYOUT_OVERALL] = { "weight_global_scale", LAYOUT_FLOATS, { LAYOUT_ONE } } },
    .multiple = NVFP4_GROUP,
    .divides = true,
    .resolve = resolve_nvfp4,
};
const struct weight_layout weight_layout_mxfp4 = {
    .part = { [LAYOUT_CODES] = { "weight_packed", DTYPE_BIT(U8), { LAYOUT_N, LAYOUT_K_WORDS } },
              [LAYOUT_SCALES] = { "weight_scale", LAYOUT_E8M0, SCALES } },
    .multiple = MXFP4_GROUP,
    .resolve = resolve_mxfp4,
};
