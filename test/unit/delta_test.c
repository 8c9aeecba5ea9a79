// SPDX-License-Identifier: Apache-2.0
// The gated delta rule against its definition in double precision, faster rows against the reference bit for bit, and
// the rows of matrices that files have in one.
#include "base/random.h"
#include "device/device.h"
#include "kernel/check.h"
#include "kernel/ref/table.h"
#include "kernel/state.h"
#include "model/tensor_source_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CLASS = 2, PAGE_TOKENS = 32, TOKENS_MAX = 24, KEYS_MAX = 20, VALUES_MAX = 12, HEADS_MAX = 6 };

// One sequence, whose state is in page 1 before its rows and in page 0 after them.
struct scene {
    struct gated_delta_args args;
    struct batch batch;
    struct batch_sequence sequence;
    int32_t positions[TOKENS_MAX], pages[2];
    float mixed[TOKENS_MAX * (2 * HEADS_MAX * KEYS_MAX + HEADS_MAX * VALUES_MAX)];
    float dt[TOKENS_MAX * HEADS_MAX], beta[TOKENS_MAX * HEADS_MAX], out[TOKENS_MAX * HEADS_MAX * VALUES_MAX];
    float a[HEADS_MAX], dt_bias[HEADS_MAX];
    uint8_t *pool;
};

static void scene_open(struct scene *scene, uint64_t *seed)
{
    int groups = random_between(seed, 1, 3), heads = groups * random_between(seed, 1, 2);
    int tokens = random_between(seed, 1, TOKENS_MAX), first = random_between(seed, 0, 1) ? PAGE_TOKENS : 0;
    struct kv_state layout = kv_state_make(3, 5, heads, random_between(seed, 1, KEYS_MAX),
                                           random_between(seed, 1, VALUES_MAX));
    size_t values = layout.layer_bytes / sizeof(float);
    *scene = (struct scene){ .pages = { 1, 0 }, .pool = malloc(2 * layout.layer_bytes) };
    random_fill(seed, (float *)(void *)scene->pool, 2 * values);
    random_fill(seed, scene->mixed, sizeof scene->mixed / sizeof(float));
    random_fill(seed, scene->dt, sizeof scene->dt / sizeof(float));
    random_fill(seed, scene->beta, sizeof scene->beta / sizeof(float));
    random_fill(seed, scene->a, HEADS_MAX);
    random_fill(seed, scene->dt_bias, HEADS_MAX);
    for (int i = 0; i < HEADS_MAX; i++)
        scene->a[i] = -fabsf(scene->a[i]);
    scene->dt[0] = 30; // where softplus is a straight line
    for (int i = 0; i < tokens; i++)
        scene->positions[i] = first + i;
    scene->sequence = (struct batch_sequence){ .count = tokens, .pages = { [CLASS] = scene->pages } };
    scene->batch =
        (struct batch){ .tokens = tokens, .positions = scene->positions, .sequences = 1, .sequence = &scene->sequence };
    scene->args = (struct gated_delta_args){
        .batch = &scene->batch,
        .mixed = scene->mixed,
        .dt = scene->dt,
        .beta = scene->beta,
        .out = scene->out,
        .groups = groups,
        .interleaved = random_between(seed, 0, 1),
        .a = scene->a,
        .dt_bias = scene->dt_bias,
        .state = { .pool = scene->pool,
                   .page_bytes = layout.layer_bytes,
                   .class_index = CLASS,
                   .page_tokens = PAGE_TOKENS,
                   .layout = layout },
    };
}

static double length_of(const float *x, int count)
{
    double squares = 0;
    for (int i = 0; i < count; i++)
        squares += (double)x[i] * x[i];
    return sqrt(squares + 1e-6);
}

// One token's update of one head's state matrix, spelled out.
static void define(const struct gated_delta_args *args, int row, int head, double *matrix, double *out)
{
    int heads = args->state.layout.heads, keys = args->state.layout.keys, values = args->state.layout.values;
    int group = args->interleaved ? head % args->groups : head * args->groups / heads;
    const float *mixed = args->mixed + row * (2 * args->groups * keys + heads * values);
    const float *q = mixed + group * keys, *k = mixed + (args->groups + group) * keys;
    const float *v = mixed + 2 * args->groups * keys + head * values;
    double beta = 1 / (1 + exp(-(double)args->beta[row * heads + head]));
    double decay = exp(args->a[head] * log1p(exp((double)args->dt[row * heads + head] + args->dt_bias[head])));
    for (int j = 0; j < values; j++) {
        double recalled = 0;
        for (int i = 0; i < keys; i++) {
            matrix[i * values + j] *= decay;
            recalled += matrix[i * values + j] * k[i] / length_of(k, keys);
        }
        out[j] = 0;
        for (int i = 0; i < keys; i++) {
            matrix[i * values + j] += k[i] / length_of(k, keys) * beta * (v[j] - recalled);
            out[j] += matrix[i * values + j] * q[i] / length_of(q, keys) / sqrt(keys);
        }
    }
}

static void the_reference_is_the_definition(void **state)
{
    (void)state;
    uint64_t seed = 11;
    double worst = 0;
    for (int round = 0; round < 200; round++) {
        struct scene scene;
        scene_open(&scene, &seed);
        const struct kv_state *layout = &scene.args.state.layout;
        int heads = layout->heads, count = layout->keys * layout->values;
        double matrix[HEADS_MAX][KEYS_MAX * VALUES_MAX] = { 0 }, out[TOKENS_MAX][HEADS_MAX][VALUES_MAX];
        const uint8_t *before = state_before(&scene.args.state, &scene.batch, &scene.sequence);
        for (int i = 0; before && i < heads * count; i++)
            matrix[i / count][i % count] = ((const float *)(const void *)(before + layout->matrix_offset))[i];
        for (int i = 0; i < scene.batch.tokens * heads; i++)
            define(&scene.args, i / heads, i % heads, matrix[i % heads], out[i / heads][i % heads]);
        for (int part = 3; part >= 0; part--)
            gated_delta_ref(&scene.args, part, 4);
        uint8_t *after = state_after(&scene.args.state, &scene.batch, &scene.sequence);
        for (int i = 0; i < heads * count; i++)
            worst = fmax(worst, fabs(state_matrix(&scene.args.state, after)[i] - matrix[i / count][i % count]));
        for (int i = 0; i < scene.batch.tokens * heads * layout->values; i++)
            worst = fmax(
                worst,
                fabs(scene.out[i] - out[i / layout->values / heads][i / layout->values % heads][i % layout->values]));
        free(scene.pool);
    }
    print_message("largest error %.1e\n", worst);
    assert_true(worst < 2e-6);
}

static void rows_are_equal_bit_for_bit(void **state)
{
    (void)state;
    struct device cpu;
    assert_true(device_open_cpu(&cpu, &(struct error){ 0 }));
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        if (kernel->op != OP_GATED_DELTA || kernel->device != DEVICE_CPU || (kernel->needs & ~cpu.features))
            continue;
        for (int i = 0; i < 40; i++) {
            struct testcase_options wanted = { .load = i % 2 ? KERNEL_DECODE : KERNEL_PREFILL, .seed = (uint64_t)i };
            struct check_result result;
            check_run(kernel, &wanted, NULL, &result);
            assert_true(result.ok);
            assert_true(result.error == 0);
        }
    }
}

// A value says which row and column it was.
static struct tensor numbered(struct arena *arena, int rank, int64_t first, int64_t second, int64_t cols)
{
    struct tensor tensor = { .name = "w", .dtype = DTYPE_F32, .rank = rank, .shape = { first, cols } };
    int64_t rows = rank == 3 ? first * second : first;
    if (rank == 3)
        tensor.shape[1] = second, tensor.shape[2] = cols;
    float *values = ARENA_NEW(arena, float, rows *cols);
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = (float)i;
    tensor.data = (const char *)values;
    tensor.bytes = (size_t)(rows * cols) * sizeof *values;
    return tensor;
}

static void runs_of_groups_come_one_after_the_other(void **state)
{
    (void)state;
    struct arena arena = { 0 };
    const struct row_run runs[] = { { 0, 1 }, { 3, 2 } };
    static const float rows[] = { 0, 5, 3, 4, 8, 9 }; // of two groups of five
    struct tensor whole = numbered(&arena, 2, 10, 0, 2);
    const struct tensor *some = tensor_source_row_runs(&arena, &whole, "some", 5, runs, 2);
    assert_string_equal(some->name, "w (from some)");
    assert_true(some->rank == 2 && some->shape[0] == 6 && some->shape[1] == 2 && some->bytes == 12 * sizeof(float));
    for (int first = 0; first < 6; first++)
        for (int count = 1; count <= 6 - first; count++) {
            float out[12];
            tensor_source_read(some, first, count, out);
            for (int i = 0; i < 2 * count; i++)
                assert_true(out[i] == 2 * rows[first + i / 2] + (float)(i % 2));
        }
    struct tensor experts = numbered(&arena, 3, 3, 4, 1);
    const struct tensor *halves = tensor_source_row_runs(&arena, &experts, "up", 4, &(struct row_run){ 2, 2 }, 1);
    float out[6];
    assert_true(halves->rank == 3 && halves->shape[0] == 3 && halves->shape[1] == 2 && halves->shape[2] == 1);
    tensor_source_read(halves, 0, 6, out);
    assert_memory_equal(out, ((const float[]){ 2, 3, 6, 7, 10, 11 }), sizeof out);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_is_the_definition),
        cmocka_unit_test(rows_are_equal_bit_for_bit),
        cmocka_unit_test(runs_of_groups_come_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
