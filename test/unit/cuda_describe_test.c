// SPDX-License-Identifier: Apache-2.0
// Every row for GPUs, described for steps of all sizes on each of its architectures: launches that the hardware takes,
// of functions that the build has. No GPU is needed, and none is touched: where counts would be on a device, there is
// nothing.
#include "kernel/check.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/params.h"
#include "kernel/cuda/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK_MAX = 1024, WARP = 32, GRID_X_MAX = INT32_MAX, GRID_YZ_MAX = 65535, NOWHERE = 64 };

// The most shared memory per block, with opt-in.
static const struct {
    int sm, shared_bytes, multiprocessors;
} devices[] = {
    { 80, 166912, 108 },  { 86, 101376, 84 },   { 89, 101376, 128 },  { 90, 232448, 132 },
    { 100, 232448, 148 }, { 103, 232448, 148 }, { 120, 101376, 170 }, { 121, 101376, 48 },
};

static const struct {
    int rows, sequences, rows_each, context;
} steps[] = {
    { 1, 1, 1, 1 },          { 1, 1, 1, 131072 },      { 8, 8, 1, 4096 },
    { 9, 9, 1, 256 },        { 64, 64, 1, 8192 },      { 256, 256, 1, 131072 },
    { 2048, 1, 2048, 2048 }, { 2048, 64, 1985, 4096 }, { 8192, 1, 8192, 131072 },
};

static const struct cuda_image_function *find_function(const char *name, int architecture)
{
    for (const struct cuda_image *image = cuda_images; image->name; image++)
        for (const struct cuda_image_function *function = image->functions; function->name; function++)
            if (image->architecture == architecture && strcmp(function->name, name) == 0)
                return function;
    return NULL;
}

static void check_product(const struct cuda_product *product)
{
    assert_true(product->rows > 0 && product->in > 0 && product->out > 0);
    assert_non_null(product->x);
    assert_non_null(product->w);
    assert_non_null(product->y);
}

static void check_calls(const char *name, const struct cuda_call *calls, int count, const struct cuda_shape *shape)
{
    if (count < 1 || count > CUDA_CALLS_MAX)
        fail_msg("%s: %d launches", name, count);
    for (int i = 0; i < count; i++) {
        const struct cuda_call *call = &calls[i];
        if (!call->function) {
            check_product(&call->product);
            continue;
        }
        bool grid = call->grid[0] >= 1 && call->grid[0] <= GRID_X_MAX && call->grid[1] >= 1
            && call->grid[1] <= GRID_YZ_MAX && call->grid[2] >= 1 && call->grid[2] <= GRID_YZ_MAX;
        bool block = call->block >= 1 && call->block <= BLOCK_MAX && call->block % WARP == 0;
        const struct cuda_image_function *function = find_function(call->function, shape->sm);
        unsigned shared_bytes = call->shared_bytes + (function ? (unsigned)function->shared_bytes : 0);
        bool memory = shared_bytes <= (unsigned)shape->shared_bytes;
        bool params = call->params_bytes >= 1 && call->params_bytes <= CUDA_PARAMS_BYTES;
        bool missing = !function && cuda_is_listed(cuda_architectures, shape->sm); // images depend on the build
        if (!grid || !block || !memory || !params || missing)
            fail_msg("%s on sm_%d, %d rows: %s with grid %u %u %u, block %u, %u bytes shared, %zu of parameters%s",
                     name, shape->sm, shape->rows, call->function, call->grid[0], call->grid[1], call->grid[2],
                     call->block, shared_bytes, call->params_bytes, missing ? "; the build has no such function" : "");
    }
}

static const char *name_of(const struct cuda_call *call)
{
    return call->function ? call->function : cuda_product_name(call->product.dtype);
}

static bool is_listed(const struct kernel *kernel, const char *function)
{
    for (int i = 0; i < KERNEL_FUNCTIONS_MAX && kernel->functions[i]; i++)
        if (!strcmp(kernel->functions[i], function))
            return true;
    return false;
}

// Checks that the row lists every function that it launches, and that it launches its first function in any case.
static void check_listed(const struct kernel *kernel, const struct cuda_call *calls, int count)
{
    bool first = false;
    for (int i = 0; i < count; i++) {
        const char *name = name_of(&calls[i]);
        if (!is_listed(kernel, name))
            fail_msg("%s launches %s, which it does not list", kernel->name, name);
        first |= !strcmp(name, kernel->functions[0]);
    }
    if (!first)
        fail_msg("%s does not launch %s", kernel->name, kernel->functions[0]);
}

// Whether a row may be asked to do such a step. Beside sequences that attention decodes there may be others.
static bool does_step(const struct kernel *kernel, int step)
{
    if (!kernel_walks_sequences(kernel->op))
        return kernel->load >> kernel_load_of(steps[step].rows) & 1;
    return kernel->load >> kernel_load_of(steps[step].rows_each) & 1
        || (kernel->op == OP_ATTENTION && kernel->load & KERNEL_DECODE && steps[step].sequences > 1);
}

// The least shared memory of a device that a row says it can do with: what it says is meant for those.
static int shared_least(const struct kernel *kernel)
{
    int least = INT32_MAX;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        if (devices[d].shared_bytes >= kernel->shared_bytes && devices[d].shared_bytes < least)
            least = devices[d].shared_bytes;
    return least;
}

static void describe_everywhere(const struct kernel *kernel, const union op_args *args)
{
    int least = shared_least(kernel);
    for (const int *sm = kernel->architectures; *sm; sm++)
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
            for (int s = 0; s < (int)(sizeof steps / sizeof *steps) && devices[d].sm == *sm; s++) {
                if (!does_step(kernel, s) || devices[d].shared_bytes < kernel->shared_bytes)
                    continue;
                struct cuda_shape shape = { .rows = steps[s].rows,
                                            .tokens = steps[s].rows,
                                            .sequences = steps[s].sequences,
                                            .rows_each = steps[s].rows_each,
                                            .context = steps[s].context,
                                            .sm = *sm,
                                            .multiprocessors = devices[d].multiprocessors,
                                            .shared_bytes = devices[d].shared_bytes };
                struct cuda_call calls[CUDA_CALLS_MAX];
                int count = kernel->describe(kernel, args, &shape, calls);
                check_calls(kernel->name, calls, count, &shape);
                check_listed(kernel, calls, count);
                if (!kernel->shared_bytes || shape.shared_bytes != least)
                    continue;
                shape.shared_bytes = kernel->shared_bytes; // a device with just what the row says it needs
                check_calls(kernel->name, calls, kernel->describe(kernel, args, &shape, calls), &shape);
            }
}

// As on a device: the host cannot read how many rows there are.
static void hide_rows(struct testcase *testcase, union op_args *args)
{
    static struct cuda_batch batch;
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(testcase->op, args, uses);
    testcase->batch.on_device = &batch;
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == ROLE_ROWS)
            *operand_pointer(&uses[i]) = (void *)(intptr_t)NOWHERE;
}

static void test_rows(void **state)
{
    (void)state;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        if (kernel->device != DEVICE_CUDA)
            continue;
        assert_non_null(kernel->describe);
        assert_null(kernel->run);
        struct testcase_options cases[CHECK_CASES_MAX];
        uint32_t fused[CHECK_FUSED_MAX];
        int count = check_cases(kernel, cases), sets = check_fused(kernel, fused);
        assert_true(count > 0 && sets > 0);
        for (int i = 0; i < count * sets; i++) {
            struct testcase testcase;
            struct testcase_options wanted = cases[i / sets];
            wanted.fuses = fused[i % sets];
            wanted.size = TESTCASE_SMALL;
            wanted.seed = (uint64_t)i;
            testcase_open(&testcase, kernel, &wanted);
            union op_args *args = testcase_args_for(&testcase, kernel);
            hide_rows(&testcase, args);
            describe_everywhere(kernel, args);
            testcase_close(&testcase);
        }
    }
}

static void test_sampling(void **state)
{
    (void)state;
    static const int vocabularies[] = { 1, 256, 257, 50257, 128256, 262208, CUDA_SAMPLING_VOCABULARY_MAX };
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++)
        for (int rows = 1; rows <= 512; rows += 73)
            for (const int *sm = cuda_architectures; *sm; sm++) {
                struct cuda_sampling sampling = { .vocabulary = vocabularies[i] };
                struct cuda_shape shape = { .rows = rows, .sm = *sm, .shared_bytes = devices[1].shared_bytes };
                struct cuda_call calls[CUDA_CALLS_MAX];
                uint8_t *scratch = memory_new(cuda_sampling_bytes(rows, vocabularies[i]), 1);
                check_calls("sampling", calls, cuda_sampling_describe(&sampling, scratch, rows, calls), &shape);
                struct cuda_sampling found;
                memcpy(&found, calls[0].params, sizeof found);
                size_t values = (size_t)rows * (size_t)found.chunks, bins = (size_t)rows * CUDA_SAMPLING_BINS;
                assert_true((int64_t)found.chunks * CUDA_SAMPLING_CHUNK >= vocabularies[i]);
                assert_ptr_equal(found.masses, scratch);
                assert_ptr_equal(found.bin_masses, found.masses + values);
                assert_ptr_equal(found.bin_counts, found.bin_masses + bins);
                assert_ptr_equal(found.peaks, found.bin_counts + bins);
                assert_ptr_equal(found.peaks + values, scratch + cuda_sampling_bytes(rows, vocabularies[i]));
                free(scratch);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_sampling) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
