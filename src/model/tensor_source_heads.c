// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_source_heads.h"

#include <assert.h>
#include <string.h>

#include "kernel/minifloat.h"
#include "kernel/op.h"
#include "kernel/ref/weight.h"

#define PLAIN_FLOATS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

// A row of the file's matrix, as floats.
static void decode_row(const struct tensor *tensor, int64_t row, float *out)
{
    uint8_t blocks[HEAD_DIM_MAX * sizeof(float)];
    size_t cols = (size_t)stored_cols(tensor);
    assert(dtype_bytes(tensor->dtype, cols) <= sizeof blocks);
    stored_read(tensor, row, 1, blocks);
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
    const struct stored *stored = tensor->stored;
    int64_t cols = stored_cols(tensor);
    size_t value = dtype_bytes(tensor->dtype, 1);
    char *to = out;
    for (int64_t row = first; row < first + count; row++) {
        float values[HEAD_DIM_MAX];
        decode_row(stored->codes, row / stored->group * stored->rows_each + stored->row_first + row % stored->group,
                   values);
        for (int64_t i = 0; i < cols; i++, to += value)
            encode(tensor->dtype, values[i], to);
    }
}

// The file's rows are columns here: each is decoded once for all rows that are asked for of a head.
static void read_turned(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct stored *stored = tensor->stored;
    const struct tensor *from = stored->codes;
    int64_t latent = stored_cols(from), cols = stored_cols(tensor), end = first + count;
    size_t value = dtype_bytes(tensor->dtype, 1);
    for (int64_t row = first; row < end;) {
        int64_t head = row / latent, begin = row % latent, left = latent - begin;
        int64_t run = left < end - row ? left : end - row;
        for (int64_t col = 0; col < cols; col++) {
            float values[HEAD_DIM_MAX];
            decode_row(from, head * stored->rows_each + stored->row_first + col, values);
            char *to = (char *)out + (size_t)((row - first) * cols + col) * value;
            for (int64_t i = 0; i < run; i++, to += (size_t)cols * value)
                encode(tensor->dtype, values[begin + i], to);
        }
        row += run;
    }
}

static bool check_source(const struct tensor *tensor, struct error *err)
{
    return stored_check(tensor->stored->codes, err);
}

static const struct tensor *new_tensor(struct arena *arena, const char *name, int64_t rows, int64_t cols,
                                       struct stored stored)
{
    const struct tensor *from = stored.codes;
    struct tensor *tensor = ARENA_NEW(arena, struct tensor, 1);
    struct stored *made = ARENA_NEW(arena, struct stored, 1);
    *made = stored;
    made->check = check_source;
    made->form = from->stored ? from->stored->form : NULL;
    made->why = from->stored ? "it is cut up by heads" : NULL;
    *tensor = (struct tensor){ .name = name,
                               .dtype = PLAIN_FLOATS >> from->dtype & 1 ? from->dtype : DTYPE_F16,
                               .rank = 2,
                               .shape = { rows, cols },
                               .stored = made };
    tensor->bytes = dtype_bytes(tensor->dtype, (size_t)(rows * cols));
    return tensor;
}

static int64_t heads_of(const struct tensor *tensor, int each)
{
    return tensor_values(tensor) / stored_cols(tensor) / each;
}

const struct tensor *stored_heads_rows(struct arena *arena, const struct tensor *tensor, int each, int first, int count)
{
    return new_tensor(
        arena, arena_format(arena, "%s (from row %d of each %d)", tensor->name, first, each),
        heads_of(tensor, each) * count, stored_cols(tensor),
        (struct stored){ .read = read_rows, .codes = tensor, .rows_each = each, .row_first = first, .group = count });
}

const struct tensor *stored_heads_turned(struct arena *arena, const struct tensor *tensor, int each, int first,
                                         int count)
{
    return new_tensor(arena, arena_format(arena, "%s (from row %d of each %d, turned)", tensor->name, first, each),
                      heads_of(tensor, each) * stored_cols(tensor), count,
                      (struct stored){ .read = read_turned, .codes = tensor, .rows_each = each, .row_first = first });
}
