// SPDX-License-Identifier: Apache-2.0
// Weight quantisation (weight_encode.h). Loops run over LANES values at a time with a sum per lane: compilers vectorise
// that, and the order of summation is fixed. Errors are summed in units near the scale, so that nothing overflows or
// underflows.
#include "kernel/ref/weight_encode.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "kernel/ref/tile.h"
#include "kernel/ref/weight_grid.h"

enum { LANES = TILE_LANES };

static inline float sum_lanes(float lane[LANES])
{
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

// The largest magnitude's bits: as integers, magnitudes compare like the values, and NaN is above infinity.
static inline int32_t most_bits(const float *x, size_t count)
{
    int32_t lane[LANES] = { 0 }, most = 0;
    size_t whole = count / LANES * LANES;
    for (size_t at = 0; at < whole; at += LANES)
        for (int i = 0; i < LANES; i++) {
            int32_t magnitude = f32_bits(x[at + i]) & F32_MAGNITUDE;
            lane[i] = magnitude > lane[i] ? magnitude : lane[i];
        }
    for (size_t i = whole; i < count; i++) {
        int32_t magnitude = f32_bits(x[i]) & F32_MAGNITUDE;
        lane[i - whole] = magnitude > lane[i - whole] ? magnitude : lane[i - whole];
    }
    for (int i = 0; i < LANES; i++)
        most = lane[i] > most ? lane[i] : most;
    return most;
}

FOR_EACH_ISA float weight_amax(const float *x, size_t count)
{
    int32_t most = most_bits(x, count);
    return most < F32_INFINITY ? f32_from_bits(most) : NAN;
}

FOR_EACH_ISA double weight_energy(const float *x, const float *importance, size_t count)
{
    float lane[LANES] = { 0 };
    size_t whole = count / LANES * LANES;
    for (size_t at = 0; at < whole; at += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] += x[at + i] * x[at + i] * (importance ? importance[at + i] : 1);
    for (size_t i = whole; i < count; i++)
        lane[i - whole] += x[i] * x[i] * (importance ? importance[i] : 1);
    return sum_lanes(lane);
}

// ---- four bits: a scale for each block ----
// LANES blocks are encoded side by side, in units of a power of two near their scales.

struct blocks {
    float unit[MXFP4_BLOCK][LANES]; // value i of each block
    float importance[MXFP4_BLOCK][LANES];
    float most[LANES];   // of the magnitudes
    float error[LANES];  // squared, of the best scale so far
    int32_t best[LANES]; // the step of the best scale
};

// Blocks past the last are zeros.
static inline void blocks_read(struct blocks *blocks, const float *x, const float *importance, int count, int size,
                               const float unit[LANES])
{
    for (int lane = 0; lane < LANES; lane++) {
        float reciprocal = 1 / unit[lane];
        for (int i = 0; i < size; i++) {
            blocks->unit[i][lane] = lane < count ? x[lane * size + i] * reciprocal : 0;
            blocks->importance[i][lane] = importance && lane < count ? importance[lane * size + i] : 1;
        }
        blocks->most[lane] = 0, blocks->error[lane] = INFINITY, blocks->best[lane] = 0;
    }
    for (int i = 0; i < size; i++)
        for (int lane = 0; lane < LANES; lane++) {
            float magnitude = fabsf(blocks->unit[i][lane]);
            blocks->most[lane] = magnitude > blocks->most[lane] ? magnitude : blocks->most[lane];
        }
}

// Tries a scale per block; keeps `step` for the blocks whose error it lowers.
static inline void blocks_try(struct blocks *blocks, int size, const float scale[LANES], int step)
{
    float reciprocal[LANES], error[LANES] = { 0 };
    for (int lane = 0; lane < LANES; lane++)
        reciprocal[lane] = 1 / scale[lane];
    for (int i = 0; i < size; i++)
        for (int lane = 0; lane < LANES; lane++) {
            float magnitude = fabsf(blocks->unit[i][lane]);
            float off = magnitude - round_e2m1(magnitude * reciprocal[lane]) * scale[lane];
            error[lane] += off * off * blocks->importance[i][lane];
        }
    for (int lane = 0; lane < LANES; lane++) {
        bool better = error[lane] < blocks->error[lane];
        blocks->best[lane] = better ? step : blocks->best[lane];
        blocks->error[lane] = better ? error[lane] : blocks->error[lane];
    }
}

// Writes codes with these scales, and sums the unweighted squared error.
static inline void blocks_write(struct blocks *blocks, int count, int size, const float scale[LANES], uint8_t *codes)
{
    float reciprocal[LANES];
    for (int lane = 0; lane < LANES; lane++)
        reciprocal[lane] = 1 / scale[lane], blocks->error[lane] = 0;
    for (int i = 0; i < size; i++)
        for (int lane = 0; lane < LANES; lane++) {
            float magnitude = fabsf(blocks->unit[i][lane]);
            float off = magnitude - round_e2m1(magnitude * reciprocal[lane]) * scale[lane];
            blocks->error[lane] += off * off;
        }
    for (int i = 0; i < size; i += 2) {
        uint8_t pair[LANES];
        for (int lane = 0; lane < LANES; lane++)
            pair[lane] = (uint8_t)(f32_to_e2m1(blocks->unit[i][lane] * reciprocal[lane])
                                   | f32_to_e2m1(blocks->unit[i + 1][lane] * reciprocal[lane]) << 4);
        for (int lane = 0; lane < count; lane++)
            codes[lane * (size / 2) + i / 2] = pair[lane];
    }
}

float weight_nvfp4_global(float amax)
{
    int exponent;
    float mantissa = frexpf(fmaxf(amax / (E2M1_MAX * E4M3_MAX), 0x1p-100f), &exponent); // in [0.5, 1)
    return amax > 0 ? ldexpf(1, mantissa > 0.5f ? exponent : exponent - 1) : 1;
}

static inline void nvfp4_scales(const int32_t middle[LANES], const int32_t step[LANES], int32_t code[LANES],
                                float scale[LANES])
{
    for (int lane = 0; lane < LANES; lane++) {
        int32_t at = middle[lane] + step[lane];
        code[lane] = at < 1 ? 1 : at > E4M3_CODE_MAX ? E4M3_CODE_MAX : at;
        scale[lane] = f32_from_bits(minifloat_expand(code[lane], 3, 7));
    }
}

FOR_EACH_ISA double weight_encode_nvfp4(const struct weight_row *row, void *codes, void *scales)
{
    const float *x = row->x, *importance = row->importance;
    size_t all = row->count / NVFP4_BLOCK;
    float unit[LANES], scale[LANES];
    int32_t middle[LANES], step[LANES], code[LANES];
    double sum = 0;
    assert(row->count % NVFP4_BLOCK == 0);
    for (int lane = 0; lane < LANES; lane++)
        unit[lane] = row->global;
    for (size_t first = 0; first < all; first += LANES) {
        int some = all - first < LANES ? (int)(all - first) : LANES;
        struct blocks blocks;
        blocks_read(&blocks, x + first * NVFP4_BLOCK, importance ? importance + first * NVFP4_BLOCK : NULL, some,
                    NVFP4_BLOCK, unit);
        for (int lane = 0; lane < LANES; lane++)
            middle[lane] = f32_to_e4m3(blocks.most[lane] / E2M1_MAX);
        for (int at = NVFP4_BELOW; at <= NVFP4_ABOVE; at++) {
            for (int lane = 0; lane < LANES; lane++)
                step[lane] = at;
            nvfp4_scales(middle, step, code, scale);
            blocks_try(&blocks, NVFP4_BLOCK, scale, at);
        }
        nvfp4_scales(middle, blocks.best, code, scale);
        blocks_write(&blocks, some, NVFP4_BLOCK, scale, (uint8_t *)codes + first * NVFP4_BLOCK / 2);
        for (int lane = 0; lane < some; lane++) {
            ((uint8_t *)scales)[first + (size_t)lane] = (uint8_t)code[lane];
            sum += blocks.error[lane];
        }
    }
    return sum * row->global * row->global;
}

FOR_EACH_ISA double weight_encode_mxfp4(const struct weight_row *row, void *codes, void *scales)
{
    const float *x = row->x, *importance = row->importance;
    size_t all = row->count / MXFP4_BLOCK;
    double sum = 0;
    assert(row->count % MXFP4_BLOCK == 0);
    for (size_t first = 0; first < all; first += LANES) {
        int some = all - first < LANES ? (int)(all - first) : LANES;
        float unit[LANES], scale[LANES];
        int32_t middle[LANES];
        struct blocks blocks;
        for (int lane = 0; lane < LANES; lane++) {
            const float *block = x + (first + (size_t)(lane < some ? lane : 0)) * MXFP4_BLOCK;
            middle[lane] = mxfp4_middle(most_bits(block, MXFP4_BLOCK));
            unit[lane] = e8m0_to_f32((uint8_t)middle[lane]);
        }
        blocks_read(&blocks, x + first * MXFP4_BLOCK, importance ? importance + first * MXFP4_BLOCK : NULL, some,
                    MXFP4_BLOCK, unit);
        for (int step = -1; step <= 1; step++) {
            for (int lane = 0; lane < LANES; lane++)
                scale[lane] = e8m0_to_f32((uint8_t)(F32_BIAS + step));
            blocks_try(&blocks, MXFP4_BLOCK, scale, step);
        }
        for (int lane = 0; lane < LANES; lane++)
            scale[lane] = e8m0_to_f32((uint8_t)(F32_BIAS + blocks.best[lane]));
        blocks_write(&blocks, some, MXFP4_BLOCK, scale, (uint8_t *)codes + first * MXFP4_BLOCK / 2);
        for (int lane = 0; lane < some; lane++) {
            ((uint8_t *)scales)[first + (size_t)lane] = (uint8_t)(middle[lane] + blocks.best[lane]);
            sum += (double)blocks.error[lane] * unit[lane] * unit[lane];
        }
    }
    return sum;
}

// ---- eight bits: a scale for each row ----

static inline double row_error(const struct weight_row *row, float scale, float (*round)(float magnitude))
{
    const float *x = row->x;
    float reciprocal = 1 / scale, lane[LANES] = { 0 };
    size_t whole = row->count / LANES * LANES;
    for (size_t at = 0; at < whole; at += LANES)
        for (int i = 0; i < LANES; i++) {
            float magnitude = fabsf(x[at + i]) * reciprocal, off = magnitude - round(magnitude);
            lane[i] += off * off;
        }
    for (size_t i = whole; i < row->count; i++) {
        float magnitude = fabsf(x[i]) * reciprocal, off = magnitude - round(magnitude);
        lane[i - whole] += off * off;
    }
    return (double)sum_lanes(lane) * scale * scale;
}

// Searches scales that map the largest value to `top`, times one of the factors; returns the best and its error.
static inline float choose_scale(const struct weight_row *row, float top, const float *cholesky, int factor_count,
                                 float (*round)(float magnitude), double *least)
{
    float largest = f32_from_bits(most_bits(row->x, row->count)) / top, best = 1;
    *least = largest > 0 ? INFINITY : 0;
    for (int i = 0; i < factor_count; i++) {
        float scale = fmaxf(largest * cholesky[i], FLT_MIN);
        double error = row_error(row, scale, round);
        best = error < *least ? scale : best;
        *least = error < *least ? error : *least;
    }
    return best;
}

// E4M3's relative precision does not depend on the scale, but the position of its binades does: tries eight scales of
// an octave.
FOR_EACH_ISA double weight_encode_fp8(const struct weight_row *row, void *codes, void *scales)
{
    static const float cholesky[] = { 1,          1.0905077f, 1.1892071f, 1.2968396f,
                                      1.4142136f, 1.5422108f, 1.6817928f, 1.8340081f };
    double least;
    float scale = choose_scale(row, E4M3_MAX, cholesky, sizeof cholesky / sizeof *cholesky, round_e4m3, &least);
    const float *x = row->x, reciprocal = 1 / scale;
    size_t count = row->count; // a local copy: byte stores may alias row
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)codes)[i] = f32_to_e4m3(x[i] * reciprocal);
    memcpy(scales, &scale, sizeof scale);
    return least;
}

// Clipping the row's largest value a little may lower the error.
FOR_EACH_ISA double weight_encode_int8(const struct weight_row *row, void *codes, void *scales)
{
    static const float cholesky[] = { 1, 0.99f, 0.98f, 0.97f };
    double least;
    float scale = choose_scale(row, INT8_MAX_F, cholesky, sizeof cholesky / sizeof *cholesky, round_int8, &least);
    const float *x = row->x, reciprocal = 1 / scale;
    size_t count = row->count;
    for (size_t i = 0; i < count; i++)
        ((int8_t *)codes)[i] = (int8_t)copysignf(round_int8(fabsf(x[i]) * reciprocal), x[i]);
    memcpy(scales, &scale, sizeof scale);
    return least;
}
