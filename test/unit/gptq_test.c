// SPDX-License-Identifier: Apache-2.0
// Moments and their cholesky against double precision; and weights that make up for each other's errors: what a matrix
// gives comes nearer to what it gave than with every weight rounded to the nearest.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "container.h"
#include "kernel/minifloat.h"
#include "kernel/ref/hessian.h"
#include "kernel/ref/gptq.h"
#include "kernel/ref/weight_encode.h"

enum { COLS = 160, TOKENS = 300, ROWS = 21, HIDDEN = 12 };

static const struct hessian_damping damping = { .own = 0.01f, .common = 0.005f };

// Inputs that go together: a few hidden causes, some noise, and channels of different sizes.
static void draw_inputs(uint64_t *random, float *x, int cols)
{
    float mix[HIDDEN][COLS];
    random_fill(random, &mix[0][0], HIDDEN * COLS);
    for (int token = 0; token < TOKENS; token++) {
        float causes[HIDDEN];
        random_fill(random, causes, HIDDEN);
        for (int i = 0; i < cols; i++) {
            float sum = 0.2f * random_real(random);
            for (int j = 0; j < HIDDEN; j++)
                sum += causes[j] * mix[j][i];
            x[token * cols + i] = sum * (float)(1 + i % 5);
        }
    }
}

static float *hessian_of(const float *x, int cols, const int32_t *rows, int count, int chunks)
{
    size_t size = hessian_size((size_t)cols);
    float *hessian = memory_new(size * size, sizeof *hessian);
    for (int chunk = 0; chunk < chunks; chunk++)
        hessian_add(hessian, (size_t)cols, x, rows, count, chunk, chunks);
    return hessian;
}

static void a_hessian_is_sums_of_products(void **state)
{
    (void)state;
    enum { ODD = 37, SOME = 150 };
    static float x[TOKENS * ODD];
    int32_t rows[SOME];
    uint64_t random = 1;
    draw_inputs(&random, x, ODD);
    for (int i = 0; i < SOME; i++)
        rows[i] = random_between(&random, 0, TOKENS - 1);
    float *one = hessian_of(x, ODD, rows, SOME, 1), *three = hessian_of(x, ODD, rows, SOME, 3);
    size_t size = hessian_size(ODD);
    for (size_t i = 0; i < ODD; i++)
        for (size_t j = i; j < ODD; j++) {
            double sum = 0, scale = 0;
            for (int t = 0; t < SOME; t++) {
                sum += (double)x[(size_t)rows[t] * ODD + i] * x[(size_t)rows[t] * ODD + j];
                scale += fabs((double)x[(size_t)rows[t] * ODD + i] * x[(size_t)rows[t] * ODD + j]);
            }
            assert_true(fabs(one[i * size + j] - sum) <= 1e-5 * scale);
        }
    assert_memory_equal(one, three, size * size * sizeof *one);
    free(one);
    free(three);
}

static struct thread_pool *open_thread_pool(int threads)
{
    struct error err;
    struct thread_pool *pool = thread_pool_open(threads, &err);
    assert_non_null(pool);
    return pool;
}

static void a_cholesky_factor_times_itself_is_the_hessian(void **state)
{
    (void)state;
    static const int counts[] = { 5, 16, 37, COLS };
    static float x[TOKENS * COLS];
    uint64_t random = 2;
    struct thread_pool *alone = open_thread_pool(1), *pool = open_thread_pool(3);
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        size_t cols = (size_t)counts[n], size = hessian_size(cols);
        draw_inputs(&random, x, counts[n]);
        float *hessian = hessian_of(x, counts[n], NULL, TOKENS, 1), *factor = hessian_of(x, counts[n], NULL, TOKENS, 1);
        float *other = hessian_of(x, counts[n], NULL, TOKENS, 1);
        double mean = 0;
        for (size_t i = 0; i < cols; i++)
            mean += hessian[i * size + i] / (double)cols;
        assert_true(hessian_cholesky(factor, cols, damping, alone) && hessian_cholesky(other, cols, damping, pool));
        assert_memory_equal(factor, other, size * size * sizeof *factor);
        for (size_t i = 0; i < cols; i++)
            for (size_t j = i; j < cols; j++) {
                double sum = 0, want = hessian[i * size + j] / mean;
                want += i == j ? want * damping.own + damping.common : 0;
                for (size_t k = j; k < size; k++)
                    sum += (double)factor[i * size + k] * factor[j * size + k];
                assert_true(fabs(sum - want) <= 2e-5 * (1 + fabs(want)));
            }
        free(hessian);
        free(factor);
        free(other);
    }
    float zeros[16 * 16] = { 0 };
    assert_false(hessian_cholesky(zeros, 16, damping, pool));
    thread_pool_close(alone);
    thread_pool_close(pool);
}

// ---- rounding ----

struct format {
    weight_encoder *encode;
    gptq_encoder *gptq;
    size_t code_bytes, scale_bytes; // of a row
    double gain;                    // the error of what the matrix gives: at most this of what it is without
};

static const struct format formats[] = {
    { weight_encode_nvfp4, gptq_nvfp4, COLS / 2, COLS / 16, 0.5 },
    { weight_encode_mxfp4, gptq_mxfp4, COLS / 2, COLS / 32, 0.5 },
    { weight_encode_fp8, gptq_fp8, COLS, sizeof(float), 0.5 },
    { weight_encode_int8, gptq_int8, COLS, sizeof(float), 0.5 },
};

static void decode(const struct format *format, const uint8_t *codes, const uint8_t *scales, float global, float *out)
{
    float scale;
    memcpy(&scale, scales, sizeof scale);
    for (int i = 0; i < COLS; i++) {
        uint8_t four = codes[i / 2] >> (i % 2 ? 4 : 0) & 15;
        if (format->encode == weight_encode_nvfp4)
            out[i] = e2m1_to_f32(four) * e4m3_to_f32(scales[i / 16]) * global;
        else if (format->encode == weight_encode_mxfp4)
            out[i] = e2m1_to_f32(four) * e8m0_to_f32(scales[i / 32]);
        else if (format->encode == weight_encode_fp8)
            out[i] = e4m3_to_f32(codes[i]) * scale;
        else
            out[i] = (float)(int8_t)codes[i] * scale;
    }
}

static double output_error(const float *x, const float *row, const float *decoded)
{
    double sum = 0;
    for (int token = 0; token < TOKENS; token++) {
        double off = 0;
        for (int i = 0; i < COLS; i++)
            off += ((double)decoded[i] - row[i]) * x[token * COLS + i];
        sum += off * off;
    }
    return sum;
}

struct matrix {
    float x[TOKENS * COLS], w[ROWS * COLS], scratch[COLS * GPTQ_TILE_ROWS];
    float *factor;
    float global;
};

static void matrix_open(struct matrix *matrix, uint64_t seed)
{
    struct thread_pool *pool = open_thread_pool(2);
    assert_true(gptq_scratch(COLS) <= sizeof matrix->scratch / sizeof(float));
    draw_inputs(&seed, matrix->x, COLS);
    random_fill(&seed, matrix->w, ROWS * COLS);
    for (int i = 0; i < COLS; i++)
        matrix->w[3 * COLS + i] = 0, matrix->w[4 * COLS + i] *= 1e-6f, matrix->w[5 * COLS + i] *= i % 40 ? 0.01f : 1;
    matrix->factor = hessian_of(matrix->x, COLS, NULL, TOKENS, 1);
    assert_true(hessian_cholesky(matrix->factor, COLS, damping, pool));
    matrix->global = weight_nvfp4_global(weight_amax(matrix->w, ROWS * COLS));
    thread_pool_close(pool);
}

static void gptq(struct matrix *matrix, const struct format *format, int first, int rows, uint8_t *codes,
                 uint8_t *scales, double *errors)
{
    const struct gptq_tile tile = { .x = matrix->w + first * COLS,
                                    .rows = rows,
                                    .count = COLS,
                                    .global = matrix->global,
                                    .factor = matrix->factor,
                                    .scratch = matrix->scratch,
                                    .error = errors };
    format->gptq(&tile, codes, scales);
}

static void outputs_come_nearer(void **state)
{
    (void)state;
    static struct matrix matrix;
    matrix_open(&matrix, 3);
    for (size_t n = 0; n < sizeof formats / sizeof *formats; n++) {
        const struct format *format = &formats[n];
        uint8_t codes[GPTQ_TILE_ROWS * COLS], scales[GPTQ_TILE_ROWS * COLS], alone[COLS], alone_scales[COLS];
        double errors[GPTQ_TILE_ROWS], told, with = 0, without = 0;
        for (int first = 0; first < ROWS; first += GPTQ_TILE_ROWS) {
            int rows = ROWS - first < GPTQ_TILE_ROWS ? ROWS - first : GPTQ_TILE_ROWS;
            gptq(&matrix, format, first, rows, codes, scales, errors);
            for (int i = 0; i < rows; i++) {
                const float *row = matrix.w + (first + i) * COLS;
                const uint8_t *own = codes + (size_t)i * format->code_bytes;
                const uint8_t *own_scales = scales + (size_t)i * format->scale_bytes;
                float decoded[COLS];
                double sum = 0;
                decode(format, own, own_scales, matrix.global, decoded);
                for (int j = 0; j < COLS; j++)
                    sum += ((double)decoded[j] - row[j]) * ((double)decoded[j] - row[j]);
                assert_true(fabs(errors[i] - sum) <= 1e-4 * sum + 1e-30);
                with += output_error(matrix.x, row, decoded);
                gptq(&matrix, format, first + i, 1, alone, alone_scales, &told);
                assert_memory_equal(alone, own, format->code_bytes);
                assert_memory_equal(alone_scales, own_scales, format->scale_bytes);
                format->encode(&(struct weight_row){ row, NULL, COLS, matrix.global }, alone, alone_scales);
                decode(format, alone, alone_scales, matrix.global, decoded);
                without += output_error(matrix.x, row, decoded);
            }
        }
        assert_true(with < format->gain * without);
    }
    free(matrix.factor);
}

// Where inputs have nothing to do with each other and all count the same, nothing is made up for.
static void alone_every_weight_is_the_nearest(void **state)
{
    (void)state;
    static struct matrix matrix;
    matrix_open(&matrix, 4);
    for (int i = 0; i < COLS; i++)
        for (int j = 0; j < COLS; j++)
            matrix.factor[i * COLS + j] = i == j;
    for (size_t n = 0; n < sizeof formats / sizeof *formats; n++) {
        const struct format *format = &formats[n];
        uint8_t codes[COLS], scales[COLS], nearest[COLS], nearest_scales[COLS];
        for (int row = 0; row < ROWS; row++) {
            const struct weight_row values = { matrix.w + row * COLS, NULL, COLS, matrix.global };
            double error, least = format->encode(&values, nearest, nearest_scales);
            gptq(&matrix, format, row, 1, codes, scales, &error);
            assert_true(fabs(error - least) <= 1e-4 * least + 1e-30);
        }
    }
    free(matrix.factor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hessian_is_sums_of_products),
        cmocka_unit_test(a_cholesky_factor_times_itself_is_the_hessian),
        cmocka_unit_test(outputs_come_nearer),
        cmocka_unit_test(alone_every_weight_is_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
