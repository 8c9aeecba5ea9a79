// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_source_heads.h"

#include <assert.h>
#include <string.h>

#include "kernel/minifloat.h"
#include "kernel/op.h"
#include "kernel/ref/weight.h"

#define PLAIN_FLOATS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

// Dequantises a row of the file's matrix.
static void decode_row(const struct tensor *tensor, int64_t row, float *out)
{
    uint8_t blocks[HEAD_DIM_MAX * sizeof(float)];
    size_t cols = (size_t)tensor_cols(tensor);
    assert(dtype_bytes(tensor->dtype, cols) <= sizeof blocks);
    tensor_source_read(tensor, row, 1, blocks);
    weight_decode(tensor->dtype, blocks, cols, out);
}

static void encode(enum dtype dtype, float x, char *out)
{
    uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
    if (dtype == DTYPE_F32)
        memcpy(out, &x, sizeof x);
    else
        memcpy(out, &half, sizeof half);
}

static void read_rows(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct tensor_source *source = tensor->source;
    int64_t cols = tensor_cols(tensor);
    size_t value = dtype_bytes(tensor->dtype, 1);
    char *to = out;
    for (int64_t row = first; row < first + count; row++) {
        float values[HEAD_DIM_MAX];
        decode_row(source->codes, row / source->group * source->rows_each + source->row_first + row % source->group,
                   values);
        for (int64_t i = 0; i < cols; i++, to += value)
            encode(tensor->dtype, values[i], to);
    }
}

// A transposition: each file row is dequantised once for all requested rows of a head.
static void read_transposed(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct tensor_source *source = tensor->source;
    const struct tensor *from = source->codes;
    int64_t latent = tensor_cols(from), cols = tensor_cols(tensor), end = first + count;
    size_t value = dtype_bytes(tensor->dtype, 1);
    for (int64_t row = first; row < end;) {
        int64_t head = row / latent, begin = row % latent, left = latent - begin;
        int64_t run = left < end - row ? left : end - row;
        for (int64_t col = 0; col < cols; col++) {
            float values[HEAD_DIM_MAX];
            decode_row(from, head * source->rows_each + source->row_first + col, values);
            char *to = (char *)out + (size_t)((row - first) * cols + col) * value;
            for (int64_t i = 0; i < run; i++, to += (size_t)cols * value)
                encode(tensor->dtype, values[begin + i], to);
        }
        row += run;
    }
}

static const struct tensor *new_tensor(struct arena *arena, const char *name, int64_t rows, int64_t cols,
                                       struct tensor_source source)
{
    const struct tensor *from = source.codes;
    source.check = tensor_source_check_codes;
    source.label = from->source ? from->source->label : NULL;
    source.why = from->source ? "it is cut up by heads" : NULL;
    enum dtype dtype = PLAIN_FLOATS >> from->dtype & 1 ? from->dtype : DTYPE_F16;
    return tensor_source_new(arena, (struct tensor){ .name = name, .dtype = dtype, .rank = 2, .shape = { rows, cols } },
                             source);
}

static int64_t heads_of(const struct tensor *tensor, int each)
{
    return tensor_values(tensor) / tensor_cols(tensor) / each;
}

const struct tensor *tensor_source_head_rows(struct arena *arena, const struct tensor *tensor, int each, int first,
                                             int count)
{
    return new_tensor(arena, arena_format(arena, "%s (from row %d of each %d)", tensor->name, first, each),
                      heads_of(tensor, each) * count, tensor_cols(tensor),
                      (struct tensor_source){
                          .read = read_rows, .codes = tensor, .rows_each = each, .row_first = first, .group = count });
}

const struct tensor *tensor_source_head_transpose(struct arena *arena, const struct tensor *tensor, int each, int first,
                                                  int count)
{
    return new_tensor(
        arena, arena_format(arena, "%s (from row %d of each %d, transposed)", tensor->name, first, each),
        heads_of(tensor, each) * tensor_cols(tensor), count,
        (struct tensor_source){ .read = read_transposed, .codes = tensor, .rows_each = each, .row_first = first });
}
