// SPDX-License-Identifier: Apache-2.0
// What linear is described as on GPUs: every launch fits the device, whatever the formats and sizes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/linear.h"
#include "kernel/cuda/rows.h"
#include "kernel/load.h"

#include <cmocka.h>

enum { BLOCK_MAX = 1024, GRID_YZ_MAX = 65535 };

static const struct cuda_shape devices[] = {
    { .sm = 80, .multiprocessors = 108, .shared_bytes = 163 << 10 },
    { .sm = 86, .multiprocessors = 20, .shared_bytes = 99 << 10 },
    { .sm = 90, .multiprocessors = 132, .shared_bytes = 227 << 10 },
    { .sm = 120, .multiprocessors = 170, .shared_bytes = 99 << 10 },
};
static const int widths[] = { 256, 768, 4096, 14336, LINEAR_IN_MAX }, tokens[] = { 1, 3, 8, 9, 33, 64, 128, 200, 4096 };

// An op whose matrices have this format and the two that follow it in the row's list.
static void make_args(const struct kernel *kernel, int dtype, int outputs, int width, struct linear_args *args)
{
    *args = (struct linear_args){
        .rows = (const int *)16, .x = (const float *)16, .in = width, .outputs = outputs, .scratch = (void *)16
    };
    for (int i = 0; i < outputs; i++, dtype = (dtype + 1) % DTYPE_COUNT) {
        while (!(kernel->weights >> dtype & 1))
            dtype = (dtype + 1) % DTYPE_COUNT;
        args->output[i] = (struct linear_output){ { (enum dtype)dtype, 1000, width, (const void *)16, 0.5f },
                                                  (const float *)16,
                                                  (float *)16 };
    }
}

// All warps but the last have a part of k and a tile, and all tiles are some block's.
static void check_few(const struct cuda_call *call)
{
    struct cuda_linear_skinny few;
    memcpy(&few, call->params, sizeof few);
    assert_int_equal(call->block / 32 - 1, 1 << (few.split_shift + few.side_shift));
    assert_in_range(few.tiles_rest, 0, call->grid[0] - 1);
    assert_true(few.tiles_each > 0 || few.tiles_rest > 0);
}

static void check_calls(const struct kernel *kernel, const struct linear_args *args, const struct cuda_shape *shape)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    int count = kernel->describe(kernel, args, shape, calls);
    assert_in_range(count, 1, CUDA_CALLS_MAX);
    for (int i = 0; i < count; i++) {
        const struct cuda_call *call = &calls[i];
        if (!call->function) {
            assert_int_equal(call->product.rows, shape->rows);
            continue;
        }
        assert_in_range(call->block, 32, BLOCK_MAX);
        assert_int_equal(call->block % 32, 0);
        assert_true(call->grid[0] > 0);
        assert_in_range(call->grid[1], 1, GRID_YZ_MAX);
        assert_in_range(call->grid[2], 1, GRID_YZ_MAX);
        assert_in_range(call->shared_bytes, 0, shape->shared_bytes);
        assert_in_range(call->params_bytes, sizeof(struct cuda_linear), CUDA_PARAMS_BYTES);
        if (!strncmp(call->function, "linear_skinny_", strlen("linear_skinny_")))
            check_few(call);
    }
}

static void check_row(const struct kernel *kernel, const struct cuda_shape *device, int dtype)
{
    struct norm_args norm = { .x = (const float *)16, .weight = (const float *)16 };
    struct act_mul_args act_mul = { .out = (float *)16 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
            for (int outputs = 1; outputs <= LINEAR_OUTPUTS_MAX; outputs++) {
                struct cuda_shape shape = *device;
                struct linear_args args;
                shape.rows = shape.tokens = tokens[t];
                if (!(kernel->load >> kernel_load_of(shape.rows) & 1))
                    continue;
                make_args(kernel, dtype, outputs, widths[w], &args);
                check_calls(kernel, &args, &shape);
                if (!(kernel->fuses & KERNEL_FUSES_NORM))
                    continue;
                args.norm = &norm;
                args.act_mul = outputs == 2 ? &act_mul : NULL;
                check_calls(kernel, &args, &shape);
            }
}

static void every_launch_fits(void **state)
{
    (void)state;
    for (int i = 0; i < cuda_linear_count; i++)
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
            for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
                if (cuda_linear_rows[i].weights >> dtype & 1)
                    check_row(&cuda_linear_rows[i], &devices[d], dtype);
}

// Matrices of one format are one launch; with an activation they are so even where a norm comes first.
static void alike_goes_together(void **state)
{
    (void)state;
    struct cuda_shape shape = devices[2];
    shape.rows = 1;
    struct norm_args norm = { .x = (const float *)16, .weight = (const float *)16 };
    struct act_mul_args act_mul = { .out = (float *)32, .act = ACT_GELU_TANH };
    struct linear_args args = { .rows = (const int *)16, .in = 4096, .outputs = 2, .norm = &norm, .act_mul = &act_mul };
    for (int i = 0; i < 2; i++)
        args.output[i].weight = (struct weight){ DTYPE_NVFP4_GGUF, 14336, 4096, (const void *)16, 1 };
    struct cuda_call calls[CUDA_CALLS_MAX];
    struct cuda_linear p;
    assert_int_equal(cuda_linear_rows[2].describe(&cuda_linear_rows[2], &args, &shape, calls), 1);
    memcpy(&p, calls[0].params, sizeof p);
    assert_string_equal(calls[0].function, "linear_skinny_e2m1_16");
    assert_int_equal(calls[0].grid[0], shape.multiprocessors);
    assert_true(p.outputs == 2 && p.act == ACT_GELU_TANH && p.norm_weight == norm.weight);
    assert_true(p.output[0].y == act_mul.out);

    args.output[1].weight.dtype = DTYPE_Q6_K; // the gate, then up times its activation
    assert_int_equal(cuda_linear_rows[2].describe(&cuda_linear_rows[2], &args, &shape, calls), 2);
    memcpy(&p, calls[0].params, sizeof p);
    assert_true(p.outputs == 1 && p.act < 0 && p.output[0].y == act_mul.out);
    memcpy(&p, calls[1].params, sizeof p);
    assert_true(p.outputs == 1 && p.act == ACT_GELU_TANH && p.output[0].y == act_mul.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launch_fits),
        cmocka_unit_test(alike_goes_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
