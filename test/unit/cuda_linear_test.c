// SPDX-License-Identifier: Apache-2.0
// Tests of how GPU rows describe linear and experts: one row for each format, load and device, launches that are the
// row's own functions, and grids and shared memory that the device has.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/linear.h"

#include <cmocka.h>

enum { BLOCK_MAX = 1024, GRID_YZ_MAX = 65535, EXPERTS = 32, TOP_K = 4 };

static const struct cuda_shape devices[] = {
    { .sm = 80, .multiprocessors = 108, .shared_bytes = 163 << 10 },
    { .sm = 86, .multiprocessors = 20, .shared_bytes = 99 << 10 },
    { .sm = 90, .multiprocessors = 132, .shared_bytes = 227 << 10 },
    { .sm = 120, .multiprocessors = 170, .shared_bytes = 99 << 10 },
};
static const int widths[] = { 256, 768, 4096, 14336, LINEAR_IN_MAX }, tokens[] = { 1, 3, 8, 9, 33, 64, 128, 200, 4096 };

static bool is_ours(const struct kernel *kernel)
{
    return kernel->device == DEVICE_CUDA && (kernel->op == OP_LINEAR || kernel->op == OP_EXPERTS);
}

static enum kernel_load load_of(int rows)
{
    return rows == 1                     ? KERNEL_ROWS_1
        : rows <= KERNEL_DECODE_ROWS_MAX ? KERNEL_ROWS_8
        : rows <= 32                     ? KERNEL_ROWS_32
        : rows <= 64                     ? KERNEL_ROWS_64
        : rows <= 128                    ? KERNEL_ROWS_128
                                         : KERNEL_ROWS_MORE;
}

static bool fits(const struct kernel *kernel, enum op_kind op, enum dtype dtype, int width,
                 const struct cuda_shape *shape)
{
    return is_ours(kernel) && kernel->op == op && !kernel->nvfp4 && kernel->load & load_of(shape->rows)
        && kernel->weights >> dtype & 1 && kernel->shared_bytes <= shape->shared_bytes
        && cuda_is_listed(kernel->architectures, shape->sm)
        && (!kernel->cols_multiple || width % kernel->cols_multiple == 0);
}

static const struct kernel *find_row(enum op_kind op, enum dtype dtype, int width, const struct cuda_shape *shape)
{
    const struct kernel *best = NULL;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        if (!fits(kernel, op, dtype, width, shape))
            continue;
        if (best && best->priority == kernel->priority)
            fail_msg("%s and %s have one priority", best->name, kernel->name);
        if (!best || kernel->priority > best->priority)
            best = kernel;
    }
    return best;
}

// ---- arguments ----

static struct linear_args linear_of(enum dtype dtype, int outputs, int width, int rows)
{
    struct linear_args args = {
        .rows = (const int *)16, .x = (const float *)16, .in = width, .outputs = outputs, .scratch = (void *)16
    };
    for (int i = 0; i < outputs; i++)
        args.output[i] =
            (struct linear_output){ { dtype, rows, width, (const void *)16, 0.5f }, (const float *)16, (float *)16 };
    return args;
}

static struct experts_args experts_of(enum dtype dtype, int outputs, int width, int rows)
{
    struct experts_args args = { .rows = (const int *)16,
                                 .x = (const float *)16,
                                 .in = width,
                                 .routes = { .experts = EXPERTS, .top_k = TOP_K },
                                 .outputs = outputs };
    for (int i = 0; i < outputs; i++)
        args.output[i].weight = (struct weight){ dtype, rows, width, (const void *)16, 0.5f };
    return args;
}

// ---- every row ----

// All warps but the last have a part of k and a tile, and all tiles are some block's.
static void check_skinny(const struct cuda_call *call)
{
    struct cuda_linear_skinny skinny;
    memcpy(&skinny, call->params, sizeof skinny);
    assert_int_equal(call->block / 32 - 1, 1 << (skinny.split_shift + skinny.side_shift));
    assert_in_range(skinny.tiles_rest, 0, call->grid[0] - 1);
    assert_true(skinny.tiles_each > 0 || skinny.tiles_rest > 0);
}

// A product has no function: it is named by the row's first.
static bool is_listed(const struct kernel *kernel, const char *function)
{
    if (!function)
        return !strncmp(kernel->functions[0], "cublaslt_", strlen("cublaslt_"));
    for (int i = 0; i < KERNEL_FUNCTIONS_MAX && kernel->functions[i]; i++)
        if (!strcmp(kernel->functions[i], function))
            return true;
    return false;
}

static void check_calls(const struct kernel *kernel, const void *args, const struct cuda_shape *shape)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    int count = kernel->describe(kernel, args, shape, calls);
    assert_in_range(count, 1, CUDA_CALLS_MAX);
    for (int i = 0; i < count; i++) {
        const struct cuda_call *call = &calls[i];
        if (!is_listed(kernel, call->function))
            fail_msg("%s launches %s, which it does not list", kernel->name, call->function);
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
        if (kernel->shared_bytes)
            assert_in_range(call->shared_bytes, 0, kernel->shared_bytes);
        assert_in_range(call->params_bytes, 1, CUDA_PARAMS_BYTES);
        if (!strncmp(call->function, "linear_skinny_", strlen("linear_skinny_")))
            check_skinny(call);
    }
}

static void check_linear(const struct kernel *kernel, enum dtype dtype, int width, const struct cuda_shape *shape)
{
    struct norm_args norm = { .x = (const float *)16, .weight = (const float *)16 };
    struct act_mul_args act_mul = { .out = (float *)16 };
    struct add_args add = { .x = (float *)16 };
    for (int outputs = 1; outputs <= LINEAR_OUTPUTS_MAX; outputs++) {
        struct linear_args args = linear_of(dtype, outputs, width, 1000);
        check_calls(kernel, &args, shape);
        args.add = outputs == 1 && kernel->fuses & KERNEL_FUSES_ADD ? &add : NULL;
        args.act_mul = outputs == 2 && kernel->fuses & KERNEL_FUSES_ACT_MUL ? &act_mul : NULL;
        args.norm = kernel->fuses & KERNEL_FUSES_NORM ? &norm : NULL;
        check_calls(kernel, &args, shape);
    }
}

static void check_row(const struct kernel *kernel, enum dtype dtype, int width, const struct cuda_shape *shape)
{
    if (kernel->op == OP_LINEAR) {
        check_linear(kernel, dtype, width, shape);
        return;
    }
    for (int outputs = 1; outputs <= EXPERTS_OUTPUTS_MAX; outputs++) {
        struct experts_args args = experts_of(dtype, outputs, width, 1000);
        check_calls(kernel, &args, shape);
    }
}

static void every_launch_fits_and_is_listed(void **state)
{
    (void)state;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        for (size_t i = 0; i < COUNT_OF(devices) * COUNT_OF(widths) * COUNT_OF(tokens); i++) {
            struct cuda_shape shape = devices[i % COUNT_OF(devices)];
            shape.rows = shape.tokens = tokens[i / COUNT_OF(devices) % COUNT_OF(tokens)];
            int width = widths[i / COUNT_OF(devices) / COUNT_OF(tokens)];
            for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
                if (fits(kernel, kernel->op, (enum dtype)dtype, width, &shape))
                    check_row(kernel, (enum dtype)dtype, width, &shape);
        }
}

// All rows that an op may be bound to read its weights in one order.
static void every_format_has_a_row_for_each_load(void **state)
{
    (void)state;
    uint64_t formats = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16);
#define X(id, ...) formats |= DTYPE_BIT(id);
    LINEAR_FORMATS(X, )
#undef X
    static const enum op_kind ops[] = { OP_LINEAR, OP_EXPERTS };
    for (size_t i = 0; i < COUNT_OF(ops) * COUNT_OF(devices) * COUNT_OF(tokens); i++)
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
            struct cuda_shape shape = devices[i / COUNT_OF(ops) % COUNT_OF(devices)];
            shape.rows = tokens[i / COUNT_OF(ops) / COUNT_OF(devices)];
            const struct kernel *found = find_row(ops[i % COUNT_OF(ops)], (enum dtype)dtype, 4096, &shape);
            assert_int_equal(found != NULL, formats >> dtype & 1);
            bool packed = formats >> dtype & 1 && dtype != DTYPE_F32 && dtype != DTYPE_F16 && dtype != DTYPE_BF16;
            assert_true(!found || found->packing == (packed ? &linear_packing : NULL));
        }
}

// ---- launches of some shapes, in words ----

static const struct {
    int sm, rows;
    enum op_kind op;
    enum dtype dtype;
    int in, out;
    const char *launches; // function, grid, block, shared bytes
} expected[] = {
    { 90, 1, OP_LINEAR, DTYPE_NVFP4_GGUF, 4096, 14336, "linear_skinny_e2m1_16 132x1x1 544 152160" },
    { 90, 8, OP_LINEAR, DTYPE_Q4_K, 4096, 1024, "linear_skinny_int4_32m 32x1x1 288 143712" },
    { 120, 8, OP_LINEAR, DTYPE_Q8_0, 14336, 4096, "linear_skinny_int8_32 128x1x1 288 86368" },
    { 90, 8, OP_LINEAR, DTYPE_F16, 14336, 4096, "linear_x_f16 448x1x1 256 0; linear_skinny_f16 132x1x1 544 156256" },
    { 90, 8, OP_LINEAR, DTYPE_BF16, 4096, 4096, "linear_skinny_bf16 132x1x1 544 221792" },
    { 90, 1, OP_LINEAR, DTYPE_BF16, 100, 1000, "linear_any_bf16 125x1x1 256 0" },
    { 90, 8, OP_LINEAR, DTYPE_F32, 4096, 64, "linear_any_f32 8x8x1 256 0" },
    { 90, 9, OP_LINEAR, DTYPE_Q4_K, 4096, 4096,
      "linear_arrange 2x32x1 256 0; linear_wgmma_int4_32m_32 1x128x1 512 230400; linear_wide_add 16x9x1 256 0" },
    { 90, 33, OP_LINEAR, DTYPE_Q4_K, 4096, 4096,
      "linear_arrange 2x64x1 256 0; linear_wgmma_int4_32m_64 1x128x1 512 222208; linear_wide_add 16x33x1 256 0" },
    { 90, 128, OP_LINEAR, DTYPE_Q6_K, 4096, 14336,
      "linear_arrange 2x128x1 256 0; linear_wgmma_int6_16_128 1x132x1 512 185344" },
    { 90, 129, OP_LINEAR, DTYPE_Q6_K, 4096, 14336,
      "linear_arrange 2x256x1 256 0; linear_wgmma_int6_16_256 1x112x1 256 160768" },
    { 80, 32, OP_LINEAR, DTYPE_Q4_K, 4096, 4096,
      "linear_wide_int4_32m_32 1x16x8 256 86016; linear_wide_add 16x32x1 256 0" },
    { 80, 64, OP_LINEAR, DTYPE_Q4_K, 4096, 4096,
      "linear_wide_int4_32m_64 1x16x8 256 110592; linear_wide_add 16x64x1 256 0" },
    { 80, 128, OP_LINEAR, DTYPE_Q4_K, 4096, 4096,
      "linear_wide_int4_32m_128 1x16x8 256 159744; linear_wide_add 16x128x1 256 0" },
    { 80, 129, OP_LINEAR, DTYPE_Q4_K, 4096, 4096, "linear_wide_int4_32m_128 2x16x1 256 159744" },
    { 80, 600, OP_LINEAR, DTYPE_Q8_0, 4096, 4096, "linear_wide_int8_32_64 10x16x1 256 153600" },
    { 86, 600, OP_LINEAR, DTYPE_Q2_K, 4096, 4096, "linear_wide_int2_16m_64 10x16x1 256 98304" },
    { 120, 600, OP_LINEAR, DTYPE_Q4_K, 4096, 4096, "linear_wide_int4_32m_32 19x16x1 256 86016" },
    { 120, 600, OP_LINEAR, DTYPE_Q8_0, 4096, 4096, "linear_wide_int8_32_32 19x32x1 128 76800" },
    { 120, 9, OP_LINEAR, DTYPE_F16, 4096, 4096,
      "linear_x_f16 144x1x1 256 0; cublaslt_f16; linear_finish_f16 144x1x1 256 0" },
    { 120, 9, OP_LINEAR, DTYPE_BF16, 100, 4096, "cublaslt_bf16; linear_finish_bf16 144x1x1 256 0" },
    { 120, 9, OP_LINEAR, DTYPE_F32, 4096, 4096, "linear_any_f32 512x9x1 256 0" },
    { 90, 1, OP_EXPERTS, DTYPE_Q4_K, 4096, 1408, "experts_skinny_int4_32m 88x4x1 256 45056" },
    { 90, 600, OP_EXPERTS, DTYPE_Q4_K, 4096, 1408, "experts_wide_int4_32m 11x69x1 128 79872" },
    { 86, 9, OP_EXPERTS, DTYPE_BF16, 4096, 1408, "experts_wide_bf16 11x32x1 128 98304" },
    { 86, 8, OP_EXPERTS, DTYPE_F16, 100, 1408, "experts_any_f16 176x32x1 256 0" },
    { 86, 600, OP_EXPERTS, DTYPE_F32, 4096, 1408, "experts_any_f32 176x512x1 256 0" },
};

static void print_calls(const struct kernel *kernel, const void *args, const struct cuda_shape *shape, char *out,
                        size_t room)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    int count = kernel->describe(kernel, args, shape, calls);
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        const struct cuda_call *call = &calls[i];
        const char *between = i ? "; " : "";
        if (call->function)
            length += (size_t)snprintf(out + length, room - length, "%s%s %ux%ux%u %u %u", between, call->function,
                                       call->grid[0], call->grid[1], call->grid[2], call->block, call->shared_bytes);
        else
            length += (size_t)snprintf(out + length, room - length, "%s%s", between, kernel->functions[0]);
        assert_true(length < room);
    }
}

static void launches_are_as_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        struct cuda_shape shape = devices[0];
        for (size_t d = 0; d < COUNT_OF(devices); d++)
            shape = devices[d].sm == expected[i].sm ? devices[d] : shape;
        shape.rows = shape.tokens = expected[i].rows;
        const struct kernel *kernel = find_row(expected[i].op, expected[i].dtype, expected[i].in, &shape);
        struct linear_args linear = linear_of(expected[i].dtype, 1, expected[i].in, expected[i].out);
        struct experts_args experts = experts_of(expected[i].dtype, 1, expected[i].in, expected[i].out);
        const void *args = expected[i].op == OP_LINEAR ? (const void *)&linear : &experts;
        char found[512];
        print_calls(kernel, args, &shape, found, sizeof found);
        assert_string_equal(found, expected[i].launches);
    }
}

// ---- matrices of one op ----

// Matrices of one row are one launch; with an activation they are so even where a norm comes first.
static void matrices_of_one_row_go_together(void **state)
{
    (void)state;
    struct cuda_shape shape = devices[2];
    shape.rows = 1;
    struct norm_args norm = { .x = (const float *)16, .weight = (const float *)16 };
    struct act_mul_args act_mul = { .out = (float *)32, .act = ACT_GELU_TANH };
    struct linear_args args = linear_of(DTYPE_NVFP4_GGUF, 2, 4096, 14336);
    args.norm = &norm;
    args.act_mul = &act_mul;
    struct cuda_call calls[CUDA_CALLS_MAX];
    struct cuda_linear p;
    const struct kernel *kernel = find_row(OP_LINEAR, DTYPE_NVFP4_GGUF, args.in, &shape);
    assert_int_equal(kernel->describe(kernel, &args, &shape, calls), 1);
    memcpy(&p, calls[0].params, sizeof p);
    assert_string_equal(calls[0].function, "linear_skinny_e2m1_16");
    assert_int_equal(calls[0].grid[0], shape.multiprocessors);
    assert_true(p.outputs == 2 && p.act == ACT_GELU_TANH && p.norm_weight == norm.weight);
    assert_true(p.output[0].y == act_mul.out);
}

// With two rows, the gate's row has no activation, and up's row reads the gate where the result goes. Rows that compute
// one matrix at a time do likewise.
static void up_finds_the_gate_where_the_result_goes(void **state)
{
    (void)state;
    struct cuda_shape shape = devices[2];
    shape.rows = 1;
    struct act_mul_args act_mul = { .out = (float *)32, .act = ACT_GELU_TANH };
    struct linear_args args = linear_of(DTYPE_Q6_K, 1, 4096, 14336);
    args.act_mul = &act_mul;
    struct cuda_call calls[CUDA_CALLS_MAX];
    struct cuda_linear p;
    const struct kernel *kernel = find_row(OP_LINEAR, DTYPE_Q6_K, args.in, &shape);
    assert_int_equal(kernel->describe(kernel, &args, &shape, calls), 1);
    memcpy(&p, calls[0].params, sizeof p);
    assert_true(p.outputs == 1 && p.act == ACT_GELU_TANH && p.output[0].y == act_mul.out);

    args = linear_of(DTYPE_F32, 2, 4096, 14336);
    args.act_mul = &act_mul;
    kernel = find_row(OP_LINEAR, DTYPE_F32, args.in, &shape);
    assert_int_equal(kernel->describe(kernel, &args, &shape, calls), 2);
    for (int i = 0; i < 2; i++) {
        memcpy(&p, calls[i].params, sizeof p);
        assert_true(p.outputs == 1 && p.output[0].y == act_mul.out);
        assert_int_equal(p.act, i ? ACT_GELU_TANH : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launch_fits_and_is_listed),
        cmocka_unit_test(every_format_has_a_row_for_each_load),
        cmocka_unit_test(launches_are_as_expected),
        cmocka_unit_test(matrices_of_one_row_go_together),
        cmocka_unit_test(up_finds_the_gate_where_the_result_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
