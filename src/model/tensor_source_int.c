// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_int.c: converts int4 and int8 tensors of compressed-tensors, GPTQ and AWQ, with a scale and
// perhaps a zero point per group, to GGUF-style blocks. A level is a code minus its zero point; blocks hold levels.
#include <stdlib.h>

#include "kernel/blocks.h"
#include "kernel/minifloat.h"
#include "model/weight_layout.h"

enum { BLOCK = 32, TILE = 32, WORD_BITS = 32 }; // TILE: rows at a time, for layouts with K outermost

// Accessors of a layout's codes, zero points and scales.
struct source_detail {
    void (*codes)(const struct tensor *tensor, int64_t first, int count, int16_t *out); // (count, cols)
    int (*zero)(const struct tensor *tensor, int64_t row, int64_t group);               // NULL: no zero points
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
    return tensor->source->group ? tensor->source->group : tensor_cols(tensor);
}

static int64_t groups_of(const struct tensor *tensor)
{
    return (tensor_cols(tensor) + each_of(tensor) - 1) / each_of(tensor);
}

static int64_t words_of(int64_t values, int bits) { return (values * bits + WORD_BITS - 1) / WORD_BITS; }

static int64_t group_of(const struct tensor *tensor, int64_t col)
{
    return tensor->source->ordered ? (int64_t)word_at(tensor->source->order, col) : col / each_of(tensor);
}

static int zero_of(const struct tensor *tensor, int64_t row, int64_t group)
{
    const struct tensor_source *source = tensor->source;
    return source->asymmetric ? source->detail->zero(tensor, row, group) + source->zero_bias : source->zero;
}

static float scale_of(const struct tensor *tensor, int64_t row, int64_t group)
{
    const struct tensor_source *source = tensor->source;
    int64_t line = source->rows_each ? row / source->rows_each : 0;
    int64_t at = source->detail->scales_by_group ? group * tensor_rows(tensor) + row : line * groups_of(tensor) + group;
    return tensor_source_scale(source->scales, at) * source->factor;
}

// ---- compressed-tensors: codes are packed along K, zero points along N ----

static void codes_int8(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    const int8_t *codes = (const int8_t *)tensor->source->codes->data + first * tensor_cols(tensor);
    for (int64_t i = 0; i < count * tensor_cols(tensor); i++)
        out[i] = codes[i];
}

static void codes_packed(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    int bits = tensor->source->bits, per = WORD_BITS / bits;
    int64_t cols = tensor_cols(tensor), words = words_of(cols, bits);
    for (int i = 0; i < count; i++)
        for (int64_t col = 0; col < cols; col++)
            *out++ = (int16_t)field(word_at(tensor->source->codes, (first + i) * words + col / per), (int)(col % per),
                                    bits);
}

static int zero_packed(const struct tensor *tensor, int64_t row, int64_t group)
{
    int bits = tensor->source->bits, per = WORD_BITS / bits;
    return field(word_at(tensor->source->zeros, row / per * groups_of(tensor) + group), (int)(row % per), bits);
}

// ---- GPTQ: codes are packed along K, zero points along N; K is outermost ----

static void codes_gptq(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    int bits = tensor->source->bits, per = WORD_BITS / bits;
    int64_t rows = tensor_rows(tensor), cols = tensor_cols(tensor);
    for (int64_t col = 0; col < cols; col += per)
        for (int i = 0; i < count; i++) {
            uint32_t word = word_at(tensor->source->codes, col / per * rows + first + i);
            for (int j = 0; j < per && col + j < cols; j++)
                out[i * cols + col + j] = (int16_t)field(word, j, bits);
        }
}

static int zero_gptq(const struct tensor *tensor, int64_t row, int64_t group)
{
    int bits = tensor->source->bits, per = WORD_BITS / bits;
    int64_t words = words_of(tensor_rows(tensor), bits);
    return field(word_at(tensor->source->zeros, group * words + row / per), (int)(row % per), bits);
}

// ---- AWQ: codes and zero points are packed along N, eight in AWQ's order ----

static int awq_field(uint32_t word, int64_t row)
{
    static const int places[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    return field(word, places[row % 8], 4);
}

static void codes_awq(const struct tensor *tensor, int64_t first, int count, int16_t *out)
{
    int64_t cols = tensor_cols(tensor), words = words_of(tensor_rows(tensor), 4);
    int16_t tile[TILE][BLOCK]; // a tile avoids cache conflicts between rows at power-of-two strides
    for (int64_t col = 0; col < cols; col += BLOCK) {
        int width = cols - col < BLOCK ? (int)(cols - col) : BLOCK;
        for (int j = 0; j < width; j++) {
            uint32_t word = 0;
            for (int i = 0; i < count; i++) {
                int64_t row = first + i;
                if (i == 0 || row % 8 == 0)
                    word = word_at(tensor->source->codes, (col + j) * words + row / 8);
                tile[i][j] = (int16_t)awq_field(word, row);
            }
        }
        for (int i = 0; i < count; i++)
            memcpy(out + i * cols + col, tile[i], (size_t)width * sizeof **tile);
    }
}

static int zero_awq(const struct tensor *tensor, int64_t row, int64_t group)
{
    int64_t words = words_of(tensor_rows(tensor), 4);
    return awq_field(word_at(tensor->source->zeros, group * words + row / 8), row);
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

static void put_fp8(void *out, const int levels[BLOCK], float scale) // E4M3 has every integer up to 16
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
    for (int64_t col = 0; col < tensor_cols(tensor); col += BLOCK, out += dtype_table[tensor->dtype].block_bytes) {
        int64_t group = col / each_of(tensor);
        int levels[BLOCK], zero = zero_of(tensor, row, group);
        for (int i = 0; i < BLOCK; i++)
            levels[i] = codes[col + i] - zero;
        puts[tensor->dtype](out, levels, scale_of(tensor, row, group));
    }
}

static void write_halves(const struct tensor *tensor, int64_t row, const int16_t *codes, char *out)
{
    for (int64_t col = 0; col < tensor_cols(tensor); col++) {
        int64_t group = group_of(tensor, col);
        float level = (float)(codes[col] - zero_of(tensor, row, group));
        put_scale((uint8_t *)out + 2 * col, level * scale_of(tensor, row, group));
    }
}

static void read_levels(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    int64_t cols = tensor_cols(tensor), end = first + count;
    size_t row_bytes = dtype_bytes(tensor->dtype, (size_t)cols);
    int16_t *codes = memory_new((size_t)(TILE * cols), sizeof *codes);
    for (int64_t row = first; row < end; row += TILE) {
        int rows = end - row < TILE ? (int)(end - row) : TILE;
        tensor->source->detail->codes(tensor, row, rows, codes);
        for (int i = 0; i < rows; i++)
            (tensor->dtype == DTYPE_F16 ? write_halves : write_blocks)(
                tensor, row + i, codes + i * cols, (char *)out + (size_t)(row + i - first) * row_bytes);
    }
    free(codes);
}

// ---- data checks ----

static bool check_extents(const struct tensor *tensor, struct error *err)
{
    const struct tensor *extents = tensor->source->extents;
    int64_t said[2];
    if (!extents)
        return true;
    memcpy(said, extents->data, sizeof said);
    return (said[0] == tensor_rows(tensor) && said[1] == tensor_cols(tensor))
        || fail(err, "tensor %s says (%lld, %lld); (%lld, %lld) was expected from the model's config", extents->name,
                (long long)said[0], (long long)said[1], (long long)tensor_rows(tensor), (long long)tensor_cols(tensor));
}

static bool check_order(const struct tensor *tensor, struct error *err)
{
    const struct tensor_source *source = tensor->source;
    for (int64_t col = 0; source->order && col < tensor_cols(tensor); col++) {
        int64_t group = (int32_t)word_at(source->order, col);
        if (source->ordered ? group < 0 || group >= groups_of(tensor) : group != col / each_of(tensor))
            return fail(err, "tensor %s has column %lld in group %lld; %s", source->order->name, (long long)col,
                        (long long)group,
                        source->ordered ? "there is no such group, so the file is damaged"
                                        : "the checkpoint declares groups in the order of columns (no desc_act)");
    }
    return true;
}

static bool check_zeros(const struct tensor *tensor, struct error *err)
{
    const struct tensor_source *source = tensor->source;
    for (int64_t row = 0; source->zeros && !source->asymmetric && row < tensor_rows(tensor); row++)
        for (int64_t group = 0; group < groups_of(tensor); group++)
            if (source->detail->zero(tensor, row, group) + source->zero_bias != source->zero)
                return fail(err, "tensor %s has zero points other than %d, and the checkpoint declares symmetric codes",
                            source->zeros->name, source->zero - source->zero_bias);
    return true;
}

static bool check_all(const struct tensor *tensor, struct error *err)
{
    return check_extents(tensor, err) && check_order(tensor, err) && check_zeros(tensor, err)
        && tensor_source_check_scales(tensor, err);
}

// ---- layouts ----

// The block format: 4-bit codes minus 4-bit zero points need 5 bits. Integer blocks have f16 scales.
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

static enum dtype resolve(const struct scheme *scheme, int64_t cols, struct tensor_source *source)
{
    static const struct {
        const struct weight_layout *layout;
        struct source_detail detail;
    } layouts[] = {
        { &weight_layout_int8, { codes_int8, NULL, false } },
        { &weight_layout_packed, { codes_packed, zero_packed, false } },
        { &weight_layout_gptq, { codes_gptq, zero_gptq, true } },
        { &weight_layout_awq, { codes_awq, zero_awq, true } },
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].layout == scheme->layout)
            source->detail = &layouts[i].detail;
    enum dtype dtype = format_of(scheme, cols, source->scales, &source->why);
    bool exact = dtype == DTYPE_F16 || dtype == DTYPE_FP8_32 || (source->scales && source->scales->dtype == DTYPE_F16);
    source->read = read_levels;
    source->check = check_all;
    source->bits = scheme->bits;
    source->asymmetric = scheme->zeros;
    source->ordered = scheme->ordered;
    source->zero = scheme->layout == &weight_layout_int8 ? 0 : 1 << (scheme->bits - 1); // int8 codes are signed
    source->zero_bias = scheme->zero_bias;
    source->factor = exact ? 1 : SCALE_FACTOR;
    return dtype;
}

#define CODES(suffix, ...) [LAYOUT_CODES] = { suffix, DTYPE_BIT(I32), { __VA_ARGS__ } }
#define SCALES(suffix, ...) [LAYOUT_SCALES] = { suffix, LAYOUT_FLOATS, { __VA_ARGS__ } }
#define ZEROS(suffix, ...) [LAYOUT_ZEROS] = { suffix, DTYPE_BIT(I32), { __VA_ARGS__ } }
#define ORDER(suffix) [LAYOUT_ORDER] = { suffix, DTYPE_BIT(I32), { LAYOUT_K } }

const struct weight_layout weight_layout_int8 = {
    .part = { [LAYOUT_CODES] = { "weight", DTYPE_BIT(I8), { LAYOUT_N, LAYOUT_K } },
              SCALES("weight_scale", LAYOUT_N_SCALES, LAYOUT_K_SCALES) },
    .resolve = resolve,
};
const struct weight_layout weight_layout_packed = {
    .part = { CODES("weight_packed", LAYOUT_N, LAYOUT_K_WORDS),
              SCALES("weight_scale", LAYOUT_N_SCALES, LAYOUT_K_SCALES),
              ZEROS("weight_zero_point", LAYOUT_N_WORDS, LAYOUT_K_SCALES), ORDER("weight_g_idx"),
              [LAYOUT_EXTENTS] = { "weight_shape", DTYPE_BIT(I64), { LAYOUT_TWO } } },
    .resolve = resolve,
};
const struct weight_layout weight_layout_gptq = {
    .part = { CODES("qweight", LAYOUT_K_WORDS, LAYOUT_N), SCALES("scales", LAYOUT_K_SCALES, LAYOUT_N),
              ZEROS("qzeros", LAYOUT_K_SCALES, LAYOUT_N_WORDS), ORDER("g_idx") },
    .resolve = resolve,
};
const struct weight_layout weight_layout_awq = {
    .part = { CODES("qweight", LAYOUT_K, LAYOUT_N_WORDS), SCALES("scales", LAYOUT_K_SCALES, LAYOUT_N),
              ZEROS("qzeros", LAYOUT_K_SCALES, LAYOUT_N_WORDS) },
    .resolve = resolve,
};
