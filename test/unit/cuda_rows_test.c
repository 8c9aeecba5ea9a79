// SPDX-License-Identifier: Apache-2.0
// Which rows for GPUs serve attention and kv_write, by cache formats, head size, load and architecture, and what they
// launch: functions that they list, and nothing else.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernel/cuda/attention_decode.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/params.h"
#include "kernel/cuda/rows.h"

#include <cmocka.h>

static bool reads(const struct kernel *kernel, enum dtype k, enum dtype v, int dim)
{
    bool size = (!kernel->head_dim || dim == kernel->head_dim) && (!kernel->head_dim_max || dim <= kernel->head_dim_max)
        && (!kernel->head_dim_multiple || dim % kernel->head_dim_multiple == 0);
    return size && kernel->k >> k & 1 && kernel->v >> v & 1;
}

static const struct kernel *find_row(enum op_kind op, enum dtype k, enum dtype v, int dim, enum kernel_load load,
                                     int sm)
{
    const struct kernel *best = NULL;
    for (const struct kernel *row = kernel_next(NULL); row; row = kernel_next(row))
        if (row->device == DEVICE_CUDA && row->op == op && row->load & load && reads(row, k, v, dim)
            && cuda_is_listed(row->architectures, sm) && (!best || row->priority > best->priority))
            best = row;
    return best;
}

static void test_which_row(void **state)
{
    static const struct {
        enum op_kind op;
        enum dtype k, v;
        int dim;
        enum kernel_load load;
        int sm;
        const char *row;
    } cases[] = {
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 64, KERNEL_ROWS_1, 80, "attention_decode_bf16_64" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 256, KERNEL_ROWS_8, 121, "attention_decode_bf16_256" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 128, KERNEL_DECODE_SMALL, 90, "attention_decode_bf16_128" },
        { OP_ATTENTION, DTYPE_F16, DTYPE_F16, 192, KERNEL_ROWS_1, 90, "attention_decode_f16_192" },
        { OP_ATTENTION, DTYPE_FP8_TOKEN, DTYPE_FP8_E4M3, 192, KERNEL_ROWS_1, 90, "attention_decode_fp8_192" },
        { OP_ATTENTION, DTYPE_FP8_E5M2, DTYPE_FP8_E5M2, 128, KERNEL_ROWS_1, 89, "attention_decode_e5m2_128" },
        { OP_ATTENTION, DTYPE_INT8_TOKEN, DTYPE_INT8_TOKEN, 256, KERNEL_ROWS_1, 90, "attention_decode_int8_256" },
        { OP_ATTENTION, DTYPE_INT4_TOKEN, DTYPE_INT4_TOKEN, 64, KERNEL_ROWS_1, 90, "attention_decode_int4_64" },
        { OP_ATTENTION, DTYPE_NVFP4_4OVER6, DTYPE_NVFP4, 128, KERNEL_ROWS_1, 90, "attention_decode_nvfp4_128" },
        { OP_ATTENTION, DTYPE_NVFP4, DTYPE_NVFP4, 128, KERNEL_DECODE_SMALL, 90, "attention_decode_nvfp4_small_128" },
        { OP_ATTENTION, DTYPE_INT4_TOKEN, DTYPE_INT4_TOKEN, 64, KERNEL_DECODE_SMALL, 103,
          "attention_decode_int4_small_64" },
        { OP_ATTENTION, DTYPE_NVFP4, DTYPE_NVFP4, 128, KERNEL_DECODE_SMALL, 86, "attention_decode_nvfp4_128" },
        { OP_ATTENTION, DTYPE_NVFP4, DTYPE_NVFP4, 256, KERNEL_DECODE_SMALL, 90, "attention_decode_nvfp4_256" },
        { OP_ATTENTION, DTYPE_FP8_E4M3, DTYPE_NVFP4, 64, KERNEL_ROWS_1, 90, "attention_decode_fp8_nvfp4_64" },
        { OP_ATTENTION, DTYPE_NVFP4, DTYPE_FP8_E4M3, 128, KERNEL_ROWS_1, 90, "attention_decode_nvfp4_fp8_128" },
        { OP_ATTENTION, DTYPE_FP8_E4M3, DTYPE_NVFP4, 256, KERNEL_ROWS_1, 90, "attention_decode_plain" },
        { OP_ATTENTION, DTYPE_INT4_TOKEN, DTYPE_INT4_TOKEN, 192, KERNEL_ROWS_1, 90, "attention_decode_plain" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 80, KERNEL_ROWS_8, 90, "attention_decode_plain" },
        { OP_ATTENTION, DTYPE_F32, DTYPE_F32, 128, KERNEL_ROWS_1, 90, "attention_decode_plain" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_FP8_E4M3, 128, KERNEL_DECODE_SMALL, 90, "attention_decode_plain" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 64, KERNEL_ROWS_32, 90, "attention_prefill_wgmma_64" },
        { OP_ATTENTION, DTYPE_NVFP4, DTYPE_F32, 80, KERNEL_ROWS_64, 90, "attention_prefill_wgmma_128" },
        { OP_ATTENTION, DTYPE_F16, DTYPE_F16, 192, KERNEL_ROWS_MORE, 90, "attention_prefill_wgmma_256" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 48, KERNEL_ROWS_128, 120, "attention_prefill_mma_64" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 128, KERNEL_ROWS_MORE, 100, "attention_prefill_mma_128" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 144, KERNEL_ROWS_32, 80, "attention_prefill_mma_256" },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 512, KERNEL_ROWS_1, 90, NULL },
        { OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, 72, KERNEL_ROWS_32, 90, NULL },
        { OP_KV_WRITE, DTYPE_NVFP4, DTYPE_BF16, 128, KERNEL_ROWS_1, 90, "kv_write_4" },
        { OP_KV_WRITE, DTYPE_BF16, DTYPE_BF16, 256, KERNEL_ROWS_64, 90, "kv_write_8" },
        { OP_KV_WRITE, DTYPE_BF16, DTYPE_BF16, 512, KERNEL_ROWS_8, 90, "kv_write_16" },
        { OP_KV_WRITE, DTYPE_BF16, DTYPE_BF16, 64, KERNEL_ROWS_128, 90, "kv_write_16" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct kernel *row = find_row(cases[i].op, cases[i].k, cases[i].v, cases[i].dim, cases[i].load,
                                            cases[i].sm);
        const char *name = row ? row->name : "none", *wanted = cases[i].row ? cases[i].row : "none";
        if (strcmp(name, wanted) != 0)
            fail_msg("case %zu: %s instead of %s", i, name, wanted);
    }
}

static void test_rows_are_named_after_their_functions(void **state)
{
    static const struct {
        const struct kernel *rows;
        const int *count;
    } tables[] = {
        { cuda_attention_decode_rows, &cuda_attention_decode_count },
        { cuda_attention_prefill_rows, &cuda_attention_prefill_count },
        { cuda_gated_delta_rows, &cuda_gated_delta_count },
        { cuda_kv_write_rows, &cuda_kv_write_count },
        { cuda_small_rows, &cuda_small_count },
        { cuda_ssm_scan_rows, &cuda_ssm_scan_count },
    };
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (int j = 0; j < *tables[i].count; j++)
            assert_string_equal(tables[i].rows[j].name, tables[i].rows[j].functions[0]);
}

// ---- launches of attention ----

static struct cuda_batch counts;
static const struct batch batch = { .on_device = &counts };
static const int dims[] = { 64, 80, 128, 192, 256 };

static struct attention_args args_of(enum dtype dtype, int dim)
{
    struct kv_place cache = { .page_bytes = 1 << 20, .layout = kv_layout_make(dtype, dtype, 4, dim, dim) };
    return (
        struct attention_args){ .batch = &batch, .heads = 16, .group = 4, .scale = 1, .cache = cache, .sink = cache };
}

static struct cuda_shape shape_of(int sequences, int rows_each, int context)
{
    return (struct cuda_shape){ .rows = sequences * rows_each,
                                .tokens = sequences * rows_each,
                                .sequences = sequences,
                                .rows_each = rows_each,
                                .context = context,
                                .sm = 90,
                                .multiprocessors = 132,
                                .shared_bytes = 227 << 10 };
}

static struct cuda_attention describe_first(const struct kernel *row, const struct attention_args *args,
                                            const struct cuda_shape *shape)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    struct cuda_attention params;
    int count = row->describe(row, args, shape, calls);
    assert_in_range(count, 1, 2);
    for (int i = 0; i < count; i++)
        assert_ptr_equal(calls[i].function, row->functions[i]);
    memcpy(&params, calls[0].params, sizeof params);
    return params;
}

// A step that has both kinds of sequences launches both rows, and between them each sequence has one.
static void test_decode_and_prefill_share_a_step(void **state)
{
    struct cuda_call calls[CUDA_CALLS_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const struct attention_args args = args_of(DTYPE_BF16, dims[i]);
        const struct kernel *decode = find_row(OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, dims[i], KERNEL_ROWS_8, 90);
        const struct kernel *prefill = find_row(OP_ATTENTION, DTYPE_BF16, DTYPE_BF16, dims[i], KERNEL_ROWS_32, 90);
        struct cuda_shape mixed = shape_of(3, 40, 4096), one = shape_of(1, 40, 4096), few = shape_of(2, 8, 4096);
        assert_int_equal(describe_first(decode, &args, &mixed).rows_max + 1,
                         describe_first(prefill, &args, &mixed).rows_min);
        assert_int_equal(decode->describe(decode, &args, &one, calls), 0);
        assert_int_equal(prefill->describe(prefill, &args, &one, calls), 1);
        assert_int_equal(prefill->describe(prefill, &args, &few, calls), 0);
    }
}

// Rows of one CTA per SM cut a context like those that they stand in for: their results have the same bits.
static void test_small_steps(void **state)
{
    static const enum dtype dtypes[] = { DTYPE_NVFP4, DTYPE_INT4_TOKEN };
    const struct cuda_shape small = shape_of(1, 1, 4096), large = shape_of(64, 1, 4096);
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const struct attention_args args = args_of(dtypes[i], 128);
        const struct kernel *any = find_row(OP_ATTENTION, dtypes[i], dtypes[i], 128, KERNEL_ROWS_1, 90);
        const struct kernel *alone = find_row(OP_ATTENTION, dtypes[i], dtypes[i], 128, KERNEL_DECODE_SMALL, 90);
        struct cuda_attention left = describe_first(any, &args, &small), right = describe_first(alone, &args, &small);
        assert_ptr_not_equal(any, alone);
        assert_int_equal(left.log_warps, right.log_warps);
        assert_int_equal(left.log_splits, right.log_splits);
        assert_true(attention_decode_is_small(any, &args, &small));
        assert_false(attention_decode_is_small(any, &args, &large));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_row),
        cmocka_unit_test(test_rows_are_named_after_their_functions),
        cmocka_unit_test(test_decode_and_prefill_share_a_step),
        cmocka_unit_test(test_small_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
