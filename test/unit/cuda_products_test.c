// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt, as nibble asks for them, against libraries that stand in for it and for the driver.
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "container.h"
#include "device/cuda.h"
#include "fake_blas.h"
#include "fake_cuda.h"
#include "kernel/blocks.h"
#include "kernel/cuda/linear_native.h"
#include "kernel/minifloat.h"
#include "kernel/ref/weight.h"

enum { ROWS = 5, IN = 24, OUT = 7 };

static struct fake_blas *blas;
static struct fake_cuda *gpu;

// One product on the fake GPU, whose memory is the host's.
struct scene {
    struct cuda *cuda;
    uint16_t *x, *w;
    void *y;
};

static void *in_library(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW), *found = handle ? dlsym(handle, name) : NULL;
    if (!found)
        fail_msg("%s is not the one of this test: LD_LIBRARY_PATH names it in test/meson.build", library);
    return found;
}

static int set_up(void **state)
{
    static struct scene scene;
    struct error err;
    blas = in_library("libcublasLt.so.13", "fake_blas");
    gpu = in_library("libcuda.so.1", "fake_cuda");
    *blas = (struct fake_blas){ 0 };
    *gpu = (struct fake_cuda){ .devices = 1, .free_bytes = 1 << 30 };
    scene.cuda = cuda_open(0, &err);
    scene.x = cuda_new(scene.cuda, ROWS * IN * 2, "x", &err);
    scene.w = cuda_new(scene.cuda, OUT * IN * 2, "w", &err);
    scene.y = cuda_new(scene.cuda, ROWS * OUT * 4, "y", &err);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    cuda_free(scene->cuda, scene->x);
    cuda_free(scene->cuda, scene->w);
    cuda_free(scene->cuda, scene->y);
    cuda_close(scene->cuda);
    assert_int_equal(blas->live, 0);
    assert_int_equal(gpu->live, 0);
    return 0;
}

static struct cuda_product product_of(const struct scene *scene, enum dtype dtype, bool f32_out)
{
    return (struct cuda_product){ .dtype = dtype,
                                  .rows = ROWS,
                                  .in = IN,
                                  .out = OUT,
                                  .x = scene->x,
                                  .w = scene->w,
                                  .factor = 1,
                                  .y = scene->y,
                                  .f32_out = f32_out };
}

static int x_value(int row, int i) { return (row * 5 + i * 3) % 11 - 5; }
static int w_value(int out, int i) { return (out * 7 + i * 2) % 13 - 6; }

// Small whole numbers, which every format has.
static void fill(const struct scene *scene, enum dtype dtype)
{
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < IN; i++) {
            float value = (float)x_value(row, i);
            scene->x[row * IN + i] = dtype == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
        }
    for (int out = 0; out < OUT; out++)
        for (int i = 0; i < IN; i++) {
            float value = (float)w_value(out, i);
            scene->w[out * IN + i] = dtype == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
        }
}

static void check_result(const struct scene *scene, enum dtype dtype, bool f32_out, float times)
{
    for (int row = 0; row < ROWS; row++)
        for (int out = 0; out < OUT; out++) {
            int sum = 0, at = row * OUT + out;
            for (int i = 0; i < IN; i++)
                sum += x_value(row, i) * w_value(out, i);
            uint16_t code = ((uint16_t *)scene->y)[at];
            float found = f32_out ? ((float *)scene->y)[at] : dtype == DTYPE_F16 ? f16_to_f32(code) : bf16_to_f32(code);
            float want = times * (float)sum;
            if (!f32_out)
                want = dtype == DTYPE_F16 ? f16_to_f32(f32_to_f16(want)) : bf16_to_f32(f32_to_bf16(want));
            assert_true(found == want);
        }
}

static void test_rows_are_rows(void **state)
{
    struct scene *scene = *state;
    static const enum dtype dtypes[] = { DTYPE_BF16, DTYPE_F16 };
    struct error err;
    for (int i = 0; i < 4; i++) {
        struct cuda_product product = product_of(scene, dtypes[i % 2], i / 2);
        fill(scene, product.dtype);
        assert_true(cuda_multiply(scene->cuda, &product, &err));
        check_result(scene, product.dtype, product.f32_out, 1);
        product.accumulate = true;
        if (product.f32_out) {
            assert_true(cuda_multiply(scene->cuda, &product, &err));
            check_result(scene, product.dtype, true, 2);
            product.factor = 0.5f; // what is there already is not scaled
            assert_true(cuda_multiply(scene->cuda, &product, &err));
            check_result(scene, product.dtype, true, 2.5f);
        }
    }
}

static void test_a_kind_is_learned_once(void **state)
{
    struct scene *scene = *state;
    struct error err;
    struct cuda_product product = product_of(scene, DTYPE_BF16, false);
    for (int i = 0; i < 3; i++)
        assert_true(cuda_multiply(scene->cuda, &product, &err));
    assert_int_equal(blas->searches, 1);
    product.rows--;
    assert_true(cuda_multiply(scene->cuda, &product, &err));
    assert_int_equal(blas->searches, 2);
}

static void test_the_rows_of_a_step_are_done_alike(void **state)
{
    struct scene *scene = *state;
    struct error err;
    struct cuda_product product = product_of(scene, DTYPE_BF16, false);
    assert_true(cuda_multiply(scene->cuda, &product, &err));
    assert_int_equal(blas->searched_rows, 128);
    assert_true(blas->in_parts);
    product.rows = 3;
    blas->failing = "cublasLtMatmulAlgoCheck"; // what is for a step does not do for these
    assert_true(cuda_multiply(scene->cuda, &product, &err));
    assert_int_equal(blas->searched_rows, 3);
    assert_false(blas->in_parts);
}

// Whichever way is taken for so many rows, it does not split sums.
static void test_many_rows_are_done_as_is_best_for_them(void **state)
{
    struct scene *scene = *state;
    struct error err;
    struct cuda_product product = product_of(scene, DTYPE_BF16, false);
    product.rows = 257;
    product.x = cuda_new(scene->cuda, (size_t)product.rows * IN * 2, "x", &err);
    product.y = cuda_new(scene->cuda, (size_t)product.rows * OUT * 2, "y", &err);
    assert_true(cuda_multiply(scene->cuda, &product, &err));
    assert_int_equal(blas->searched_rows, product.rows);
    assert_false(blas->in_parts);
    cuda_free(scene->cuda, (void *)product.x);
    cuda_free(scene->cuda, product.y);
}

// Matrices of NVFP4 as rows are packed for this, and as activations are rounded.
static void test_nvfp4_is_multiplied_as_it_is(void **state)
{
    enum { MANY_ROWS = 131, MANY_OUT = 144, MANY_IN = 192, RUNS = MANY_IN / NVFP4_RUN, ROW_BLOCKS = MANY_IN / 64 };
    struct scene *scene = *state;
    struct error err;
    const struct kernel_packing *packing = &linear_native_packing;
    static struct NVFP4_GGUF blocks[MANY_OUT * ROW_BLOCKS];
    static float x[MANY_ROWS][MANY_IN], w[MANY_OUT][MANY_IN];
    uint8_t *bytes = (uint8_t *)blocks;
    const size_t count = sizeof blocks;
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(i % 36 < 4 ? 0x20 + i * 7 % 32 : i * 37 + i / 5 * 11);
    struct weight weight = { DTYPE_NVFP4_GGUF, MANY_OUT, MANY_IN, blocks, 0.5f };
    weight_decode(DTYPE_NVFP4_GGUF, blocks, MANY_OUT * MANY_IN, w[0]);
    uint8_t *packed = cuda_new(scene->cuda, packing->bytes(DTYPE_NVFP4_GGUF, MANY_OUT, MANY_IN), "w", &err);
    for (int part = 0; part < 3; part++)
        packing->pack(&weight, part, 3, packed);
    size_t scales_at = linear_native_scales(MANY_ROWS, MANY_IN);
    uint8_t *codes = cuda_new(scene->cuda, scales_at + nvfp4_scales_bytes(MANY_ROWS, RUNS), "x", &err);
    float *y = cuda_new(scene->cuda, sizeof(float) * MANY_ROWS * MANY_OUT, "y", &err);
    for (int row = 0; row < MANY_ROWS; row++)
        for (int run = 0; run < RUNS; run++) {
            uint8_t *to = codes + row * MANY_IN / 2 + run * NVFP4_RUN / 2;
            float *values = x[row] + run * NVFP4_RUN;
            for (int i = 0; i < NVFP4_RUN; i++)
                values[i] = (float)x_value(row + run, i) * 0.3f;
            uint8_t scale = codes[scales_at + nvfp4_scale_at(row, run, RUNS)] = nvfp4_round(values, to);
            for (int i = 0; i < NVFP4_RUN; i++)
                values[i] = e4m3_to_f32(scale) * e2m1_to_f32(to[i / 2] >> i % 2 * 4 & 15);
        }
    struct cuda_product product = { .dtype = DTYPE_NVFP4_GGUF,
                                    .rows = MANY_ROWS,
                                    .in = MANY_IN,
                                    .out = MANY_OUT,
                                    .x = codes,
                                    .x_scales = codes + scales_at,
                                    .w = packed,
                                    .factor = weight.scale,
                                    .w_scales = packed + linear_native_scales(MANY_OUT, MANY_IN),
                                    .y = y,
                                    .f32_out = true };
    assert_true(cuda_multiply(scene->cuda, &product, &err));
    for (int row = 0; row < MANY_ROWS; row++)
        for (int out = 0; out < MANY_OUT; out++) {
            double sum = 0;
            for (int i = 0; i < MANY_IN; i++)
                sum += (double)x[row][i] * w[out][i];
            assert_float_equal(y[row * MANY_OUT + out], 0.5 * sum, 1e-4 * (1 + fabs(sum)));
        }
    blas->knows_nothing = true; // as on GPUs that have no such products
    product.rows--;
    assert_false(cuda_multiply(scene->cuda, &product, &err));
    assert_says(err, "cuBLASLt has no way to multiply 130 x 192 NVFP4 activations with 144 x 192 weights");
    cuda_free(scene->cuda, packed);
    cuda_free(scene->cuda, codes);
    cuda_free(scene->cuda, y);
}

static void test_whatever_fails_ends_in_a_sentence(void **state)
{
    struct scene *scene = *state;
    static const char *const symbols[] = {
        "cublasLtCreate",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceSetAttribute",
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmul",
    };
    struct error err;
    struct cuda_product product = product_of(scene, DTYPE_BF16, false);
    for (size_t i = 0; i < COUNT_OF(symbols); i++) {
        blas->failing = symbols[i];
        assert_false(cuda_multiply(scene->cuda, &product, &err));
        assert_says(err, "GPU 0: ");
        assert_says(err, "CUBLAS_STATUS_FAKE");
    }
    blas->failing = NULL;
    blas->knows_nothing = true;
    product.rows = 2;
    assert_false(cuda_multiply(scene->cuda, &product, &err));
    assert_says(err, "no way to multiply 2 x 24 bfloat16 activations with 7 x 24 weights");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows_are_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_kind_is_learned_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_rows_of_a_step_are_done_alike, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_rows_are_done_as_is_best_for_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nvfp4_is_multiplied_as_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_whatever_fails_ends_in_a_sentence, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
