// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_int.c: integers of 4 and 8 bits with a scale, and perhaps a zero point, for a group of a row's
// values: compressed-tensors, GPTQ and AWQ. A code less its zero point is a level; blocks of kernels hold levels.
#include <stdlib.h>

#include "kernel/blocks.h"
#include "kernel/minifloat.h"
#include "model/weight_layout.h"

enum { BLOCK = 32, TILE = 32, WORD_BITS = 32 }; // TILE: rows at a time, for files that have a row's codes far apart

// How codes, zero points and scales lie.
struct stored_layout {
    void (*codes)(const struct tensor *tensor, int64_t first, int count, int16_t *out); // (count, cols)
    int (*zero)(const struct tensor *tensor, int64_t row, int64_t group);               // NULL: there are none
    bool scales_by_group; // (groups, N) instead of (N, groups)
};

static uint32_t word_at(const struct tensor *tensor, int64_t index)
{
    uint32_t word;
    memcpy(&word, tensor->data + index * (int64_t)sizeof word, sizeof word);
    return word;
}

static int field(uint32_t word, int index, int bits) { return (int)(word >> index * bits & ((1u << bits) - 1)); }

static int64_t each_of(const struct tensor *tensor)
{
    return tensor->stored->group ? tensor->stored->group : stored_cols(tensor);
}

static int64_t groups_of(const struct tensor *tensor)
{
    return (stored_cols(tensor) + each_of(tensor) - 1) / each_of(tensor);
}

static int64_t words_of(int64_t values, int bits) { return (values * bits + WORD_BITS - 1) / WORD_BITS; }

static int64_t group_of(const struct tensor *tensor, int64_t col)
{
    return tensor->stored->ordered ? (int64_t)word_at(tensor->stored->order, col) : col / each_of(tensor);
}

static int zero_of(const struct tensor *tensor, int64_t row, int64_t group)
{
    const struct stored *stored = tensor->stored;
    return stored->asymmetric ? stored->layout->zero(tensor, row, group) + stored->zero_bias : stored->zero;
}

static float scale_of(const struct tensor *tensor, int64_t row, int64_t group)
{
    const struct stored *stored = tensor->stored;
    int64_t line = stored->rows_each ? row / stored->rows_each : 0;
    int64_t at = stored->layout->scales_by_group ? group * stored_rows(tensor) + row : line * groups_of(tensor) + group;
    return stored_scale(stored->scales, at) * stored->factor;
}

// ---- compressed-tensors: a row's codes follow one another; zero points are packed along the rows ----

static void codes_int8(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    const int8_t *codes = (const int8_t *)tensor->stored->codes->data + first * stored_cols(tensor);
    for (int64_t i = 0; i < count * stored_cols(tensor); i++)
        out[i] = codes[i];
}

static void codes_packed(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    int bits = tensor->stored->bits, per = WORD_BITS / bits;
    int64_t cols = stored_cols(tensor), words = words_of(cols, bits);
    for (int i = 0; i < count; i++)
        for (int64_t col = 0; col < cols; col++)
            *out++ = (int16_t)field(word_at(tensor->stored->codes, (first + i) * words + col / per), (int)(col % per),
                                    bits);
}

static int zero_packed(const struct tensor *tensor, int64_t row, int64_t group)
{
    int bits = tensor->stored->bits, per = WORD_BITS / bits;
    return field(word_at(tensor->stored->zeros, row / per * groups_of(tensor) + group), (int)(row % per), bits);
}

// ---- GPTQ: codes are packed along the columns, zero points along the rows ----

static void codes_gptq(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    int bits = tensor->stored->bits, per = WORD_BITS / bits;
    int64_t rows = stored_rows(tensor), cols = stored_cols(tensor);
    for (int64_t col = 0; col < cols; col += per)
        for (int i = 0; i < count; i++) {
            uint32_t word = word_at(tensor->stored->codes, col / per * rows + first + i);
            for (int j = 0; j < per && col + j < cols; j++)
                out[i * cols + col + j] = (int16_t)field(word, j, bits);
        }
}

static int zero_gptq(const struct tensor *tensor, int64_t row, int64_t group)
{
    int bits = tensor->stored->bits, per = WORD_BITS / bits;
    int64_t words = words_of(stored_rows(tensor), bits);
    return field(word_at(tensor->stored->zeros, group * words + row / per), (int)(row % per), bits);
}

// ---- AWQ: codes and zero points are packed along the rows, eight in an order of their own ----

static int awq_field(uint32_t word, int64_t row)
{
    static const int places[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    return field(word, places[row % 8], 4);
}

static void codes_awq(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    int64_t cols = stored_cols(tensor), words = words_of(stored_rows(tensor), 4);
    int16_t tile[TILE][BLOCK]; // straight into rows, that are powers of two apart, would evict what was just written
    for (int64_t col = 0; col < cols; col += BLOCK) {
        int width = cols - col < BLOCK ? (int)(cols - col) : BLOCK;
        for (int j = 0; j < width; j++) {
            uint32_t word = 0;
            for (int i = 0; i < count; i++) {
                int64_t row = first + i;
                if (i == 0 || row % 8 == 0)
                    word = word_at(tensor->stored->codes, (col + j) * words + row / 8);
                tile[i][j] = (int16_t)awq_field(word, row);
            }
        }
        for (int i = 0; i < count; i++)
            memcpy(out + i * cols + col, tile[i], (size_t)width * sizeof **tile);
    }
}

static int zero_awq(const struct tensor *tensor, int64_t row, int64_t group)
{
    int64_t words = words_of(stored_rows(tensor), 4);
    return awq_field(word_at(tensor->stored->zeros, group * words + row / 8), row);
}

// ---- levels to blocks ----

static void put_scale(uint8_t out[2], float scale)
{
    uint16_t half = f32_to_f16(scale);
    memcpy(out, &half, sizeof half);
}

static void put_nibbles(uint8_t codes[16], const int levels[BLOCK], int zero)
{
    for (int i = 0; i < BLOCK / 2; i++)
        codes[i] = (uint8_t)(((levels[i] + zero) & 15) | ((levels[i + BLOCK / 2] + zero) & 15) << 4);
}

static void put_q4_0(void *out, const int levels[BLOCK], float scale)
{
    struct Q4_0 *block = out;
    put_scale(block->scale, scale);
    put_nibbles(block->codes, levels, 8);
}

static void put_q5_0(void *out, const int levels[BLOCK], float scale)
{
    struct Q5_0 *block = out;
    uint32_t high = 0;
    for (int i = 0; i < BLOCK; i++)
        high |= (uint32_t)((levels[i] + 16) >> 4 & 1) << i;
    put_scale(block->scale, scale);
    memcpy(block->high, &high, sizeof high);
    put_nibbles(block->codes, levels, 16);
}

static void put_q8_0(void *out, const int levels[BLOCK], float scale)
{
    struct Q8_0 *block = out;
    put_scale(block->scale, scale);
    for (int i = 0; i < BLOCK; i++)
        block->codes[i] = (int8_t)levels[i];
}

static void put_fp8(void *out, const int levels[BLOCK], float scale) // has every integer up to 16
{
    struct FP8_32 *block = out;
    memcpy(block->scale, &scale, sizeof scale);
    for (int i = 0; i < BLOCK; i++)
        block->codes[i] = f32_to_e4m3((float)levels[i]);
}

static void write_blocks(const struct tensor *tensor, int64_t row, const int16_t *codes, char *out)
{
    static void (*const puts[])(void *out, const int *levels, float scale) = {
        [DTYPE_Q4_0] = put_q4_0, [DTYPE_Q5_0] = put_q5_0, [DTYPE_Q8_0] = put_q8_0, [DTYPE_FP8_32] = put_fp8
    };
    for (int64_t col = 0; col < stored_cols(tensor); col += BLOCK, out += dtype_table[tensor->dtype].block_bytes) {
        int64_t group = col / each_of(tensor);
        int levels[BLOCK], zero = zero_of(tensor, row, group);
        for (int i = 0; i < BLOCK; i++)
            levels[i] = codes[col + i] - zero;
        puts[tensor->dtype](out, levels, scale_of(tensor, row, group));
    }
}

static void write_halves(const struct tensor *tensor, int64_t row, const int16_t *codes, char *out)
{
    for (int64_t col = 0; col < stored_cols(tensor); col++) {
        int64_t group = group_of(tensor, col);
        float level = (float)(codes[col] - zero_of(tensor, row, group));
        put_scale((uint8_t *)out + 2 * col, level * scale_of(tensor, row, group));
    }
}

static void read_levels(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    int64_t cols = stored_cols(tensor), end = first + count;
    size_t row_bytes = dtype_bytes(tensor->dtype, (size_t)cols);
    int16_t *codes = memory_new((size_t)(TILE * cols), sizeof *codes);
    for (int64_t row = first; row < end; row += TILE) {
        int rows = end - row < TILE ? (int)(end - row) : TILE;
        tensor->stored->layout->codes(tensor, row, rows, codes);
        for (int i = 0; i < rows; i++)
            (tensor->dtype == DTYPE_F16 ? write_halves : write_blocks)(
                tensor, row + i, codes + i * cols, (char *)out + (size_t)(row + i - first) * row_bytes);
    }
    free(codes);
}

// ---- what headers cannot say ----

static bool check_extents(const struct tensor *tensor, struct error *err)
{
    const struct tensor *extents = tensor->stored->extents;
    int64_t said[2];
    if (!extents)
        return true;
    memcpy(said, extents->data, sizeof said);
    return (said[0] == stored_rows(tensor) && said[1] == stored_cols(tensor))
        || fail(err, "tensor %s says (%lld, %lld); (%lld, %lld) was expected from the model's config", extents->name,
                (long long)said[0], (long long)said[1], (long long)stored_rows(tensor), (long long)stored_cols(tensor));
}

static bool check_order(const struct tensor *tensor, struct error *err)
{
    const struct stored *stored = tensor->stored;
    for (int64_t col = 0; stored->order && col < stored_cols(tensor); col++) {
        int64_t group = (int32_t)word_at(stored->order, col);
        if (stored->ordered ? group < 0 || group >= groups_of(tensor) : group != col / each_of(tensor))
            return fail(err, "tensor %s has column %lld in group %lld; %s", stored->order->name, (long long)col,
                        (long long)group,
                        stored->ordered ? "there is no such group, so the file is damaged"
                                        : "the checkpoint declares groups in the order of columns (no desc_act)");
    }
    return true;
}

static bool check_zeros(const struct tensor *tensor, struct error *err)
{
    const struct stored *stored = tensor->stored;
    for (int64_t row = 0; stored->zeros && !stored->asymmetric && row < stored_rows(tensor); row++)
        for (int64_t group = 0; group < groups_of(tensor); group++)
            if (stored->layout->zero(tensor, row, group) + stored->zero_bias != stored->zero)
                return fail(err, "tensor %s has zero points other than %d, and the checkpoint declares symmetric codes",
                            stored->zeros->name, stored->zero - stored->zero_bias);
    return true;
}

static bool check_all(const struct tensor *tensor, struct error *err)
{
    return check_extents(tensor, err) && check_order(tensor, err) && check_zeros(tensor, err)
        && stored_check_scales(tensor, err);
}

// ---- the forms ----

// Levels of 4 bits less a zero point of 4 bits take 5. Blocks of integers have scales of 16 bits.
static enum dtype format_of(const struct scheme *scheme, int64_t cols, const struct tensor *scales, const char **why)
{
    bool wide = scales && scales->dtype == DTYPE_F32;
    if (scheme->ordered)
        *why = "its groups are in activation order";
    else if (scheme->bits == 8 && scheme->zeros)
        *why = "8-bit codes have zero points";
    else if (cols % BLOCK || scheme->group % BLOCK)
        *why = "rows or groups are no multiple of 32";
    else if (scheme->bits == 4 && wide)
        return *why = "its scales are float32", DTYPE_FP8_32;
    else
        return scheme->bits == 8 ? DTYPE_Q8_0 : scheme->zeros ? DTYPE_Q5_0 : DTYPE_Q4_0;
    return DTYPE_F16;
}

static enum dtype settle(const struct scheme *scheme, int64_t cols, struct stored *stored)
{
    static const struct {
        const struct form *form;
        struct stored_layout layout;
    } layouts[] = {
        { &form_int8, { codes_int8, NULL, false } },
        { &form_packed, { codes_packed, zero_packed, false } },
        { &form_gptq, { codes_gptq, zero_gptq, true } },
        { &form_awq, { codes_awq, zero_awq, true } },
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].form == scheme->form)
            stored->layout = &layouts[i].layout;
    enum dtype dtype = format_of(scheme, cols, stored->scales, &stored->why);
    bool exact = dtype == DTYPE_F16 || dtype == DTYPE_FP8_32 || (stored->scales && stored->scales->dtype == DTYPE_F16);
    stored->read = read_levels;
    stored->check = check_all;
    stored->bits = scheme->bits;
    stored->asymmetric = scheme->zeros;
    stored->ordered = scheme->ordered;
    stored->zero = scheme->form == &form_int8 ? 0 : 1 << (scheme->bits - 1); // which has signs
    stored->zero_bias = scheme->zero_bias;
    stored->factor = exact ? 1 : STORED_FACTOR;
    return dtype;
}

#define CODES(suffix, ...) [FORM_CODES] = { suffix, DTYPE_BIT(I32), { __VA_ARGS__ } }
#define SCALES(suffix, ...) [FORM_SCALES] = { suffix, FORM_FLOATS, { __VA_ARGS__ } }
#define ZEROS(suffix, ...) [FORM_ZEROS] = { suffix, DTYPE_BIT(I32), { __VA_ARGS__ } }
#define ORDER(suffix) [FORM_ORDER] = { suffix, DTYPE_BIT(I32), { FORM_K } }

const struct form form_int8 = {
    .part = { [FORM_CODES] = { "weight", DTYPE_BIT(I8), { FORM_N, FORM_K } },
              SCALES("weight_scale", FORM_N_SCALES, FORM_K_SCALES) },
    .settle = settle,
};
const struct form form_packed = {
    .part = { CODES("weight_packed", FORM_N, FORM_K_WORDS), SCALES("weight_scale", FORM_N_SCALES, FORM_K_SCALES),
              ZEROS("weight_zero_point", FORM_N_WORDS, FORM_K_SCALES), ORDER("weight_g_idx"),
              [FORM_EXTENTS] = { "weight_shape", DTYPE_BIT(I64), { FORM_TWO } } },
    .settle = settle,
};
const struct form form_gptq = {
    .part = { CODES("qweight", FORM_K_WORDS, FORM_N), SCALES("scales", FORM_K_SCALES, FORM_N),
              ZEROS("qzeros", FORM_K_SCALES, FORM_N_WORDS), ORDER("g_idx") },
    .settle = settle,
};
const struct form form_awq = {
    .part = { CODES("qweight", FORM_K, FORM_N_WORDS), SCALES("scales", FORM_K_SCALES, FORM_N),
              ZEROS("qzeros", FORM_K_SCALES, FORM_N_WORDS) },
    .settle = settle,
};
