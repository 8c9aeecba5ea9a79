// SPDX-License-Identifier: Apache-2.0
// The linear kernels of one packing give the same bits, whatever the instruction set, the number of tokens or of parts;
// and what they are built on: rounded activations and packed weights.
#include <math.h>

#include "base/error.h"
#include "container.h"
#include "kernel/blocks.h"
#include "kernel/int8.h"
#include "kernel/testcase.h"

enum { SEEDS = 6, VALUES_MAX = 1 << 14 };

static uint32_t features;

static int find_features(void **state)
{
    (void)state;
    struct device device;
    struct error err;
    bool ok = device_open_cpu(&device, &err);
    features = device.features;
    return ok ? 0 : -1;
}

// The next packed linear row that runs here.
static const struct kernel *next_row(const struct kernel *kernel)
{
    do
        kernel = kernel_next(kernel);
    while (kernel
           && !(kernel->op == OP_LINEAR && kernel->device == DEVICE_CPU && kernel->packing
                && !(kernel->needs & ~features)));
    return kernel;
}

// All outputs of the test case one after the other, as this row gives them. Returns their number.
static size_t run_row(struct testcase *testcase, const struct kernel *kernel, int chunks, float *values)
{
    const void *args = testcase_args_for(testcase, kernel);
    for (int chunk = 0; chunk < chunks && kernel->prepare; chunk++)
        kernel->prepare(args, chunk, chunks);
    for (int chunk = 0; chunk < chunks; chunk++)
        kernel->run(args, chunk, chunks);
    size_t count = 0;
    for (int i = 0; i < testcase->outputs; i++) {
        testcase_read(testcase, i, values + count);
        count += (size_t)testcase_rows(testcase) * (size_t)testcase->output[i].row_values;
        assert_in_range(count, 1, VALUES_MAX);
    }
    return count;
}

// Every row of the same packing that takes so many tokens, in some numbers of parts.
static void compare_rows(const struct kernel *first, const struct testcase_options *wanted)
{
    static float expected[VALUES_MAX], found[VALUES_MAX];
    struct testcase testcase;
    testcase_open(&testcase, first, wanted);
    size_t count = run_row(&testcase, first, 1, expected);
    for (const struct kernel *other = next_row(NULL); other; other = next_row(other)) {
        bool fits = other->load & KERNEL_PREFILL || testcase.rows <= KERNEL_DECODE_ROWS_MAX;
        bool alike = other->packing == first->packing && other->int8 == first->int8 && other->int16 == first->int16;
        if (!fits || !alike)
            continue;
        assert_true(other->weights == first->weights);
        for (int parts = 1; parts <= 100; parts += parts + 1) {
            assert_int_equal(run_row(&testcase, other, parts, found), count);
            if (memcmp(expected, found, count * sizeof *found))
                fail_msg("%s and %s in %d parts differ on %d tokens of %s", first->name, other->name, parts,
                         testcase.rows, dtype_word(wanted->weight));
        }
    }
    testcase_close(&testcase);
}

static void test_rows_of_a_packing_agree_bit_for_bit(void **state)
{
    (void)state;
    for (const struct kernel *kernel = next_row(NULL); kernel; kernel = next_row(kernel)) {
        struct testcase_options wanted = { .load = kernel->load & KERNEL_DECODE ? KERNEL_DECODE : KERNEL_PREFILL };
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
            for (wanted.seed = 0; kernel->weights >> dtype & 1 && wanted.seed < SEEDS; wanted.seed++) {
                wanted.weight = (enum dtype)dtype;
                compare_rows(kernel, &wanted);
            }
    }
}

// Packed weights are hardly larger than the file's, and groups are padded.
static void test_packed_sizes(void **state)
{
    (void)state;
    for (const struct kernel *kernel = next_row(NULL); kernel; kernel = next_row(kernel))
        for (int i = 0; i < DTYPE_COUNT; i++) {
            enum dtype dtype = (enum dtype)i;
            if (!(kernel->weights >> i & 1))
                continue;
            size_t file = dtype_bytes(dtype, 64 * 512);
            size_t packed = kernel->packing->bytes(dtype, 64, 512);
            assert_in_range(packed, file, file + file / 5);
            assert_int_equal(kernel->packing->bytes(dtype, 49, 512), packed);
            assert_int_equal(kernel->packing->bytes(dtype, 48, 512), packed / 4 * 3);
        }
}

// A NaN among the weights is a NaN in its row of the result, and there only.
static void test_fp8_nan(void **state)
{
    (void)state;
    enum { ROWS = 20, TOKENS = 3, RECORDS = 3, IN = 32 * RECORDS };
    static const int rows = TOKENS;
    struct FP8_32 w[ROWS][RECORDS] = { 0 };
    _Alignas(64) uint8_t packed[2 * 16 * IN * sizeof(float)];
    float x[TOKENS][IN] = { 0 }, y[TOKENS][ROWS];
    for (int row = 0; row < ROWS; row++)
        for (int block = 0; block < RECORDS; block++)
            memcpy(w[row][block].scale, &(float){ 1 }, sizeof(float));
    w[2][1].codes[31] = 0x7F;
    w[18][2].codes[5] = 0xFF;
    for (const struct kernel *kernel = next_row(NULL); kernel; kernel = next_row(kernel)) {
        struct weight weight = { DTYPE_FP8_32, ROWS, IN, w, 1 };
        uint8_t scratch[TOKENS * IN * sizeof(float)];
        assert_in_range(kernel->packing->bytes(DTYPE_FP8_32, ROWS, IN), 1, sizeof packed);
        kernel->packing->pack(&weight, 0, 1, packed);
        weight.data = packed;
        struct linear_args args = { .rows = &rows,
                                    .x = x[0],
                                    .in = IN,
                                    .outputs = 1,
                                    .scratch = scratch,
                                    .output = { { .weight = weight, .y = y[0] } } };
        if (kernel->prepare)
            kernel->prepare(&args, 0, 1);
        kernel->run(&args, 0, 1);
        for (int i = 0; i < TOKENS * ROWS; i++)
            assert_true(i % ROWS == 2 || i % ROWS == 18 ? isnan(y[i / ROWS][i % ROWS]) : y[i / ROWS][i % ROWS] == 0);
    }
}

// ---- activations ----

static void test_int8(void **state)
{
    (void)state;
    float x[INT8_BLOCK] = { -127, 126.5f, 125.5f, 0.5f, -0.5f, 1.5f, 0.49f, -126.51f };
    int8_t codes[INT8_BLOCK];
    assert_true(int8_round(x, codes) == 1);
    static const int8_t expected[INT8_BLOCK] = { -127, 126, 126, 0, 0, 2, 0, -127 }; // ties to even
    assert_memory_equal(codes, expected, sizeof expected);

    for (int i = 0; i < INT8_BLOCK; i++)
        x[i] = (float)i * 0x1p-110f;
    assert_true(int8_round(x, codes) == 0); // so small that it is nothing
    for (int i = 0; i < INT8_BLOCK; i++)
        assert_int_equal(codes[i], 0);

    x[3] = 3e38f;
    x[4] = -3e38f;
    assert_true(fabsf(int8_round(x, codes) * 127 / 3e38f - 1) < 1e-6f);
    assert_true(codes[3] == 127 && codes[4] == -127 && codes[5] == 0);
    x[7] = NAN;
    assert_true(isnan(int8_round(x, codes)));
    x[7] = -INFINITY;
    assert_false(isfinite(int8_round(x, codes)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_a_packing_agree_bit_for_bit),
        cmocka_unit_test(test_packed_sizes),
        cmocka_unit_test(test_fp8_nan),
        cmocka_unit_test(test_int8),
    };
    return cmocka_run_group_tests(tests, find_features, NULL);
}
