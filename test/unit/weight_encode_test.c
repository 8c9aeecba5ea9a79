// SPDX-License-Identifier: Apache-2.0
// Encoders of weights against every scale there is, in double precision.
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernel/minifloat.h"
#include "kernel/ref/weight_encode.h"

enum { COLS = 320, ROWS = 24 };

// Rows of several kinds: even, bell-shaped, with outliers, tiny, huge, zeros.
static void draw_row(uint64_t *state, int kind, float *x)
{
    static const float sizes[] = { 1, 0.02f, 0.02f, 1e-9f, 1e6f, 0 };
    for (int i = 0; i < COLS; i++) {
        float value = random_real(state);
        if (kind % 6)
            value = (value + random_real(state) + random_real(state)) / 3;
        if (kind % 6 == 2 && random_between(state, 0, 40) == 0)
            value *= 20;
        x[i] = value * sizes[kind % 6];
    }
}

static double nearest_e2m1(double magnitude)
{
    static const double levels[] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    double best = 0;
    for (int i = 1; i < 8; i++)
        if (fabs(levels[i] - magnitude) < fabs(best - magnitude))
            best = levels[i];
    return best;
}

static double nearest_e4m3(double magnitude)
{
    double best = 0;
    for (int code = 1; code < 0x7F; code++)
        if (fabs(e4m3_to_f32((uint8_t)code) - magnitude) < fabs(best - magnitude))
            best = e4m3_to_f32((uint8_t)code);
    return best;
}

static double error_of(const float *x, int count, double scale, double (*nearest)(double magnitude))
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        double off = fabs(x[i]) - scale * nearest(fabs(x[i]) / scale);
        sum += off * off;
    }
    return sum;
}

// A block's codes are the nearest for their scale, and no other scale has a lower error.
static double check_block(const float *x, int block, const uint8_t *codes, double scale, double best)
{
    double sum = 0;
    for (int i = 0; i < block; i++) {
        double off = scale * e2m1_to_f32(codes[i / 2] >> (i % 2 ? 4 : 0) & 15) - x[i];
        sum += off * off;
    }
    double tolerance = 1e-5 * best + 1e-12 * scale * scale;
    assert_true(fabs(sum - error_of(x, block, scale, nearest_e2m1)) <= tolerance);
    assert_true(sum <= best + tolerance);
    return sum;
}

static void nvfp4_takes_the_best_scale_of_all(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int row = 0; row < ROWS; row++) {
        float x[COLS];
        uint8_t codes[COLS / 2], scales[COLS / 16];
        draw_row(&random, row, x);
        float amax = weight_amax(x, COLS), global = weight_nvfp4_global(amax);
        double told = weight_encode_nvfp4(&(struct weight_row){ x, NULL, COLS, global }, codes, scales), sum = 0;
        int exponent;
        assert_true(frexpf(global, &exponent) == 0.5f && (!(amax > 0) || amax <= 2688 * global));
        for (int b = 0; b < COLS / 16; b++) {
            double best = INFINITY;
            for (int code = 1; code <= 0x7E; code++)
                best = fmin(best, error_of(x + b * 16, 16, (double)global * e4m3_to_f32((uint8_t)code), nearest_e2m1));
            assert_in_range(scales[b], 1, 0x7E);
            sum += check_block(x + b * 16, 16, codes + b * 8, (double)global * e4m3_to_f32(scales[b]), best);
        }
        assert_true(fabs(told - sum) <= 1e-4 * sum + 1e-12 * global * global);
    }
}

static double weighted_error(const float *x, const float *importance, double scale)
{
    double sum = 0;
    for (int i = 0; i < 16; i++) {
        double off = fabs(x[i]) - scale * nearest_e2m1(fabs(x[i]) / scale);
        sum += off * off * importance[i];
    }
    return sum;
}

// The scales that are tried lie around the largest value, so far smaller ones may be better; those near it are not.
static void importance_decides_between_scales(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (int row = 1; row < 3; row++) {
        float x[COLS], importance[COLS];
        uint8_t codes[COLS / 2], scales[COLS / 16];
        draw_row(&random, row, x);
        for (int i = 0; i < COLS; i++)
            importance[i] = 0.1f + fabsf(random_real(&random)) * 4;
        float global = weight_nvfp4_global(weight_amax(x, COLS));
        weight_encode_nvfp4(&(struct weight_row){ x, importance, COLS, global }, codes, scales);
        for (int b = 0; b < COLS / 16; b++) {
            const float *block = x + b * 16, *counts = importance + b * 16;
            double taken = weighted_error(block, counts, (double)global * e4m3_to_f32(scales[b]));
            int middle = f32_to_e4m3(weight_amax(block, 16) / (6 * global));
            for (int code = middle > 4 ? middle - 4 : 1; code <= middle + 7 && code <= 0x7E; code++)
                assert_true(taken
                            <= 1.00001 * weighted_error(block, counts, (double)global * e4m3_to_f32((uint8_t)code)));
        }
    }
}

static void mxfp4_takes_the_best_power_of_two_of_all(void **state)
{
    (void)state;
    uint64_t random = 2;
    for (int row = 0; row < ROWS; row++) {
        float x[COLS];
        uint8_t codes[COLS / 2], scales[COLS / 32];
        draw_row(&random, row, x);
        double told = weight_encode_mxfp4(&(struct weight_row){ x, NULL, COLS, 1 }, codes, scales), sum = 0;
        for (int b = 0; b < COLS / 32; b++) {
            double best = INFINITY;
            for (int exponent = -126; exponent <= 126; exponent++)
                best = fmin(best, error_of(x + b * 32, 32, ldexp(1, exponent), nearest_e2m1));
            assert_in_range(scales[b], 1, 254);
            sum += check_block(x + b * 32, 32, codes + b * 16, ldexp(1, scales[b] - 127), best);
        }
        assert_true(fabs(told - sum) <= 1e-4 * sum + 1e-30);
    }
}

// Rows, and no multiple of any vector's width.
static void fp8_is_as_near_as_its_scale_allows(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (int row = 0; row < ROWS; row++) {
        float x[COLS], scale;
        uint8_t codes[COLS];
        int count = COLS - row;
        draw_row(&random, row, x);
        double told = weight_encode_fp8(&(struct weight_row){ x, NULL, (size_t)count, 1 }, codes, &scale), sum = 0;
        assert_true(scale >= FLT_MIN && isfinite(scale));
        for (int i = 0; i < count; i++) {
            double off = (double)scale * e4m3_to_f32(codes[i]) - x[i];
            sum += off * off;
        }
        double plain = error_of(x, count, fmax(weight_amax(x, (size_t)count) / 448, FLT_MIN), nearest_e4m3);
        assert_true(fabs(sum - error_of(x, count, scale, nearest_e4m3)) <= 1e-4 * sum + 1e-30);
        assert_true(fabs(told - sum) <= 1e-3 * sum + 1e-30 && sum <= plain * 1.0001 + 1e-30);
    }
}

static void int8_is_as_near_as_its_scale_allows(void **state)
{
    (void)state;
    uint64_t random = 4;
    for (int row = 0; row < ROWS; row++) {
        float x[COLS], scale;
        int8_t codes[COLS];
        int count = COLS - row;
        draw_row(&random, row, x);
        double told = weight_encode_int8(&(struct weight_row){ x, NULL, (size_t)count, 1 }, codes, &scale);
        double sum = 0, plain = 0;
        double amax = weight_amax(x, (size_t)count);
        for (int i = 0; i < count; i++) {
            double off = (double)scale * codes[i] - x[i], step = amax > 0 ? amax / 127 : 1;
            double plain_off = step * rint(x[i] / step) - x[i];
            assert_true(codes[i] >= -127 && (fabs(off) <= 0.5001 * scale || abs(codes[i]) == 127));
            sum += off * off;
            plain += plain_off * plain_off;
        }
        assert_true(fabs(told - sum) <= 1e-3 * sum + 1e-30 && sum <= plain * 1.0001 + 1e-30);
    }
}

static void amax_sees_every_value_and_what_is_none(void **state)
{
    (void)state;
    float x[COLS] = { 0 };
    for (int i = 0; i < COLS; i++) {
        x[i] = -3;
        assert_true(weight_amax(x, COLS) == 3 && weight_energy(x, NULL, COLS) == 9);
        x[i] = i % 2 ? NAN : -INFINITY;
        assert_true(isnan(weight_amax(x, COLS)));
        x[i] = 0;
    }
    assert_true(weight_amax(x, 0) == 0 && weight_nvfp4_global(0) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvfp4_takes_the_best_scale_of_all),
        cmocka_unit_test(importance_decides_between_scales),
        cmocka_unit_test(mxfp4_takes_the_best_power_of_two_of_all),
        cmocka_unit_test(fp8_is_as_near_as_its_scale_allows),
        cmocka_unit_test(int8_is_as_near_as_its_scale_allows),
        cmocka_unit_test(amax_sees_every_value_and_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
