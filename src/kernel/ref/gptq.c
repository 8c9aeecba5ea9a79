// SPDX-License-Identifier: Apache-2.0
// GPTQ rounding (gptq.h). Rows are processed side by side, one per lane, in units of a power of two near their largest
// value, so that sums of squares neither overflow nor underflow.
#include "kernel/ref/gptq.h"

#include <assert.h>
#include <math.h>

#include "kernel/ref/hessian.h"
#include "kernel/ref/weight_encode.h"
#include "kernel/ref/weight_grid.h"

enum { LANES = TILE_LANES, BLOCK_MAX = MXFP4_BLOCK };

// Columns that are rounded together: a scale's block, or a tile.
struct block {
    float value[BLOCK_MAX][LANES];     // with earlier columns' errors added
    float own[BLOCK_MAX][LANES];       // the original values
    float carry[BLOCK_MAX][BLOCK_MAX]; // [i][j]: the part of column i's error that is added to column j
    float cost[BLOCK_MAX];             // weight of a column's squared error: the Cholesky factor's diagonal, squared
};

// A rounded block, with one scale per lane.
struct rounding {
    float code[BLOCK_MAX][LANES]; // as numbers
    float lost[BLOCK_MAX][LANES]; // error, relative to the original values
    float cost[LANES];
};

size_t gptq_scratch(size_t count) { return hessian_size(count) * LANES; }

// ---- rows ----

// Transposes rows to (columns, LANES), zero-padded. A row far below the matrix's smallest scale is not scaled up.
static void read_rows(const struct gptq_tile *tile, float unit[LANES])
{
    float least = fmaxf(0x1p-100f, tile->global * 0x1p-16f);
    memset(tile->scratch, 0, gptq_scratch(tile->count) * sizeof(float));
    for (int lane = 0; lane < LANES; lane++) {
        const float *x = tile->x + (size_t)lane * tile->count;
        float amax = lane < tile->rows ? weight_amax(x, tile->count) : 0;
        unit[lane] = fmaxf(f32_from_bits(f32_bits(amax) & F32_INFINITY), least);
        for (size_t i = 0; i < tile->count && lane < tile->rows; i++)
            tile->scratch[i * LANES + (size_t)lane] = x[i] / unit[lane];
    }
}

// After rounding, scratch holds the errors.
static void sum_errors(const struct gptq_tile *tile, const float unit[LANES])
{
    for (int row = 0; row < tile->rows; row++) {
        double sum = 0;
        for (size_t i = 0; i < tile->count; i++) {
            double lost = tile->scratch[i * LANES + (size_t)row];
            sum += lost * lost;
        }
        tile->error[row] = sum * unit[row] * unit[row];
    }
}

// ---- a block ----

INLINE_FOR_EACH_ISA void block_read(struct block *block, const struct gptq_tile *tile, size_t first, int width)
{
    size_t size = hessian_size(tile->count);
    for (int i = 0; i < width; i += TILE_ROWS) {
        float sum[TILE_ROWS][LANES] = { 0 };
        tile_multiply(sum, tile->factor + first + (size_t)i, size, 1, tile->scratch, LANES, first);
        for (int r = 0; r < TILE_ROWS; r++) {
            size_t column = first + (size_t)(i + r);
            float diagonal = tile->factor[column * size + column], reciprocal = 1 / diagonal;
            block->cost[i + r] = diagonal * diagonal;
            for (int lane = 0; lane < LANES; lane++) {
                block->own[i + r][lane] = tile->scratch[column * LANES + (size_t)lane];
                block->value[i + r][lane] = block->own[i + r][lane] + sum[r][lane] * reciprocal;
            }
            for (int before = 0; before < i + r; before++)
                block->carry[before][i + r] = tile->factor[(first + (size_t)before) * size + column] * reciprocal;
        }
    }
}

INLINE_FOR_EACH_ISA void block_round(const struct block *block, int width, const float scale[LANES],
                                     float (*round)(float magnitude), struct rounding *out)
{
    float value[BLOCK_MAX][LANES], reciprocal[LANES], cost[LANES] = { 0 };
    for (int lane = 0; lane < LANES; lane++)
        reciprocal[lane] = 1 / scale[lane];
    for (int i = 0; i < width; i++)
        for (int lane = 0; lane < LANES; lane++)
            value[i][lane] = block->value[i][lane];
    for (int i = 0; i < width; i++) {
        for (int lane = 0; lane < LANES; lane++) {
            float code = copysignf(round(fabsf(value[i][lane]) * reciprocal[lane]), value[i][lane]);
            float off = value[i][lane] - code * scale[lane];
            cost[lane] += off * off * block->cost[i];
            out->code[i][lane] = code;
            out->lost[i][lane] = block->own[i][lane] - code * scale[lane];
        }
        for (int j = i + 1; j < width; j++)
            for (int lane = 0; lane < LANES; lane++)
                value[j][lane] += out->lost[i][lane] * block->carry[i][j];
    }
    for (int lane = 0; lane < LANES; lane++)
        out->cost[lane] = cost[lane];
}

INLINE_FOR_EACH_ISA void block_keep(const struct gptq_tile *tile, size_t first, int width,
                                    const struct rounding *rounding)
{
    for (int i = 0; i < width; i++)
        for (int lane = 0; lane < LANES; lane++)
            tile->scratch[(first + (size_t)i) * LANES + (size_t)lane] = rounding->lost[i][lane];
}

// ---- four bits: a scale for each block ----

struct four_bits {
    int width;                                                   // of a block
    int32_t (*middle)(float amax, const struct gptq_tile *tile); // the scale code in the middle of the search
    int below, above, least, most;                               // the search's range in steps, and the valid codes
    float (*scale)(int32_t code, const struct gptq_tile *tile);
};

INLINE_FOR_EACH_ISA void middle_codes(const struct four_bits *format, const struct gptq_tile *tile,
                                      const struct block *block, const float unit[LANES], int32_t code[LANES])
{
    float amax[LANES] = { 0 };
    for (int i = 0; i < format->width; i++)
        for (int lane = 0; lane < LANES; lane++) {
            float magnitude = fabsf(block->value[i][lane]);
            amax[lane] = magnitude > amax[lane] ? magnitude : amax[lane];
        }
    for (int lane = 0; lane < LANES; lane++)
        code[lane] = format->middle(amax[lane] * unit[lane], tile);
}

// Rounds with the scales `step` codes from the middle.
INLINE_FOR_EACH_ISA void round_with(const struct four_bits *format, const struct gptq_tile *tile,
                                    const struct block *block, const float unit[LANES], const int32_t middle[LANES],
                                    const int32_t step[LANES], int32_t code[LANES], struct rounding *out)
{
    float scale[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        int32_t at = middle[lane] + step[lane];
        code[lane] = at < format->least ? format->least : at > format->most ? format->most : at;
        scale[lane] = format->scale(code[lane], tile) / unit[lane];
    }
    block_round(block, format->width, scale, round_e2m1, out);
}

// Rounds with the scales of least cost.
INLINE_FOR_EACH_ISA void round_best(const struct four_bits *format, const struct gptq_tile *tile,
                                    const struct block *block, const float unit[LANES], int32_t code[LANES],
                                    struct rounding *out)
{
    int32_t middle[LANES], step[LANES], best[LANES] = { 0 };
    float least[LANES];
    middle_codes(format, tile, block, unit, middle);
    for (int at = format->below; at <= format->above; at++) {
        for (int lane = 0; lane < LANES; lane++)
            step[lane] = at;
        round_with(format, tile, block, unit, middle, step, code, out);
        for (int lane = 0; lane < LANES; lane++) {
            bool better = at == format->below || out->cost[lane] < least[lane];
            best[lane] = better ? at : best[lane];
            least[lane] = better ? out->cost[lane] : least[lane];
        }
    }
    round_with(format, tile, block, unit, middle, best, code, out);
}

INLINE_FOR_EACH_ISA void gptq_four_bits(const struct four_bits *format, const struct gptq_tile *tile, uint8_t *codes,
                                        uint8_t *scales)
{
    size_t width = (size_t)format->width, blocks = tile->count / width;
    float unit[LANES];
    assert(tile->count % width == 0);
    read_rows(tile, unit);
    for (size_t at = 0; at < blocks; at++) {
        struct block block;
        struct rounding rounding;
        int32_t code[LANES];
        block_read(&block, tile, at * width, format->width);
        round_best(format, tile, &block, unit, code, &rounding);
        block_keep(tile, at * width, format->width, &rounding);
        for (int row = 0; row < tile->rows; row++) {
            uint8_t *pairs = codes + ((size_t)row * blocks + at) * width / 2;
            scales[(size_t)row * blocks + at] = (uint8_t)code[row];
            for (size_t i = 0; i < width; i += 2)
                pairs[i / 2] = (uint8_t)(f32_to_e2m1(rounding.code[i][row])
                                         | f32_to_e2m1(rounding.code[i + 1][row]) << 4);
        }
    }
    sum_errors(tile, unit);
}

INLINE_FOR_EACH_ISA int32_t nvfp4_middle(float amax, const struct gptq_tile *tile)
{
    return f32_to_e4m3(amax / tile->global / E2M1_MAX);
}

INLINE_FOR_EACH_ISA float nvfp4_scale(int32_t code, const struct gptq_tile *tile)
{
    return f32_from_bits(minifloat_expand(code, 3, 7)) * tile->global;
}

FOR_EACH_ISA void gptq_nvfp4(const struct gptq_tile *tile, uint8_t *codes, void *scales)
{
    const struct four_bits format = {
        NVFP4_BLOCK, nvfp4_middle, NVFP4_BELOW, NVFP4_ABOVE, 1, E4M3_CODE_MAX, nvfp4_scale
    };
    gptq_four_bits(&format, tile, codes, scales);
}

INLINE_FOR_EACH_ISA int32_t mxfp4_code(float amax, const struct gptq_tile *tile)
{
    (void)tile;
    return mxfp4_middle(f32_bits(amax));
}

INLINE_FOR_EACH_ISA float mxfp4_scale(int32_t code, const struct gptq_tile *tile)
{
    (void)tile;
    return e8m0_to_f32((uint8_t)code);
}

FOR_EACH_ISA void gptq_mxfp4(const struct gptq_tile *tile, uint8_t *codes, void *scales)
{
    const struct four_bits format = { MXFP4_BLOCK, mxfp4_code, -1, 1, 0, E8M0_CODE_MAX, mxfp4_scale };
    gptq_four_bits(&format, tile, codes, scales);
}

// ---- eight bits: a scale per row, the same as without GPTQ ----

INLINE_FOR_EACH_ISA void gptq_eight_bits(const struct gptq_tile *tile, weight_encoder *encode,
                                         float (*round)(float magnitude), uint8_t (*code_of)(float code),
                                         uint8_t *codes, float *scales)
{
    float unit[LANES], scale[LANES];
    size_t count = tile->count;
    for (int row = 0; row < tile->rows; row++)
        encode(&(struct weight_row){ .x = tile->x + (size_t)row * count, .count = count }, codes + (size_t)row * count,
               &scales[row]);
    read_rows(tile, unit);
    for (int lane = 0; lane < LANES; lane++)
        scale[lane] = lane < tile->rows ? scales[lane] / unit[lane] : 1;
    for (size_t first = 0; first < count; first += LANES) {
        struct block block;
        struct rounding rounding;
        block_read(&block, tile, first, LANES);
        block_round(&block, LANES, scale, round, &rounding);
        block_keep(tile, first, LANES, &rounding);
        for (int row = 0; row < tile->rows; row++)
            for (size_t i = first; i < count && i < first + LANES; i++)
                codes[(size_t)row * count + i] = code_of(rounding.code[i - first][row]);
    }
    sum_errors(tile, unit);
}

FOR_EACH_ISA void gptq_fp8(const struct gptq_tile *tile, uint8_t *codes, void *scales)
{
    gptq_eight_bits(tile, weight_encode_fp8, round_e4m3, f32_to_e4m3, codes, scales);
}

INLINE_FOR_EACH_ISA uint8_t int8_code(float code) { return (uint8_t)(int8_t)code; }

FOR_EACH_ISA void gptq_int8(const struct gptq_tile *tile, uint8_t *codes, void *scales)
{
    gptq_eight_bits(tile, weight_encode_int8, round_int8, int8_code, codes, scales);
}
