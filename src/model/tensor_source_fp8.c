// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_fp8.c: converts published FP8 (E4M3) tensors to blocks of 32. Scales are per tensor, per row
// (channel), per block of rows and columns, or per 32 values (MXFP8).
#include "kernel/blocks.h"
#include "kernel/minifloat.h"
#include "model/weight_layout.h"

enum { BLOCK = 32 };

// A row's codes and the index of its first scale; a scale covers `each` columns.
struct row {
    const uint8_t *codes;
    int64_t scales, each;
};

static struct row row_of(const struct tensor *tensor, int64_t index)
{
    const struct tensor_source *source = tensor->source;
    int64_t cols = tensor_cols(tensor), each = source->group ? source->group : cols;
    int64_t line = source->rows_each ? index / source->rows_each : 0;
    return (struct row){ (const uint8_t *)source->codes->data + index * cols, line * ((cols + each - 1) / each), each };
}

static void read_fp8(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    struct FP8_32 *block = out;
    for (int64_t index = first; index < first + count; index++) {
        struct row row = row_of(tensor, index);
        for (int64_t col = 0; col < tensor_cols(tensor); col += BLOCK, block++) {
            float scale = tensor_source_scale(tensor->source->scales, row.scales + col / row.each);
            memcpy(block->scale, &scale, sizeof scale);
            memcpy(block->codes, row.codes + col, BLOCK);
        }
    }
}

static void read_as_f16(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    uint16_t *value = out;
    for (int64_t index = first; index < first + count; index++) {
        struct row row = row_of(tensor, index);
        for (int64_t col = 0; col < tensor_cols(tensor); col++)
            *value++ = f32_to_f16(e4m3_to_f32(row.codes[col])
                                  * tensor_source_scale(tensor->source->scales, row.scales + col / row.each));
    }
}

static enum dtype resolve(const struct scheme *scheme, int64_t cols, struct tensor_source *source)
{
    bool whole = cols % BLOCK == 0 && scheme->group % BLOCK == 0;
    source->check = tensor_source_check_scales;
    source->read = whole ? read_fp8 : read_as_f16;
    source->why = whole ? NULL : "rows or groups are no multiple of 32";
    return whole ? DTYPE_FP8_32 : DTYPE_F16;
}

#define CODES                                                 \
    {                                                         \
        "weight", DTYPE_BIT(FP8_E4M3), { LAYOUT_N, LAYOUT_K } \
    }
#define SCALES { LAYOUT_N_SCALES, LAYOUT_K_SCALES }

const struct weight_layout weight_layout_fp8 = {
    .part = { [LAYOUT_CODES] = CODES, [LAYOUT_SCALES] = { "weight_scale", LAYOUT_FLOATS, SCALES } }, .resolve = resolve
};
const struct weight_layout weight_layout_fp8_inverse = {
    // multiplies in spite of its name
    .part = { [LAYOUT_CODES] = CODES, [LAYOUT_SCALES] = { "weight_scale_inv", LAYOUT_FLOATS | LAYOUT_E8M0, SCALES } },
    .resolve = resolve,
};
const struct weight_layout weight_layout_mxfp8 = {
    .part = { [LAYOUT_CODES] = CODES, [LAYOUT_SCALES] = { "weight_scale", LAYOUT_E8M0, SCALES } },
    .multiple = BLOCK,
    .resolve = resolve,
};
