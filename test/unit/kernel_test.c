// SPDX-License-Identifier: Apache-2.0
// Every reference kernel but the two of the cache (attention_test.c) against a plain definition in double precision.
#include <math.h>

#include "container.h"
#include "kernel/ref/table.h"
#include "kernel/ref/weight.h"
#include "kernel_run.h"

enum { ROWS_MAX = 5 };

// ---- the table ----

static void test_every_op_has_its_definition(void **state)
{
    (void)state;
    bool defined[OP_COUNT] = { 0 };
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        assert_true(kernel->name && kernel->op < OP_COUNT && kernel->load & KERNEL_ANY);
        assert_true(kernel->device == DEVICE_CPU ? kernel->run != NULL : kernel->describe && kernel->architectures);
        for (const struct kernel *other = kernel_next(kernel); other; other = kernel_next(other))
            assert_string_not_equal(kernel->name, other->name);
        defined[kernel->op] |= kernel->priority == 0 && kernel->load == KERNEL_ANY && !kernel->needs;
    }
    for (int op = 0; op < OP_COUNT; op++)
        if (!defined[op])
            fail_msg("op %s has no reference", op_word(op));
}

static void test_shares_are_even_and_whole(void **state)
{
    (void)state;
    static const int counts[] = { 0, 1, 2, 6, 7, 100, 12345, INT32_MAX };
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        for (int parts = 1; parts <= 256; parts += 15)
            for (int part = 0, at = 0; part < parts; part++) {
                int first, end;
                kernel_range(counts[i], part, parts, &first, &end);
                assert_int_equal(first, at);
                assert_true(end - first >= counts[i] / parts && end - first - 1 <= counts[i] / parts);
                at = end;
                assert_true(part + 1 < parts || end == counts[i]);
            }
}

// ---- linear and embed ----

static bool is_weight(int dtype) { return dtype_table[dtype].use & DTYPE_USE_W; }

// Random blocks, drawn again until what they mean is of ordinary size. Like in a file, they start anywhere.
static struct guarded random_weights(uint64_t *seed, enum dtype dtype, size_t values)
{
    const struct dtype_info *info = &dtype_table[dtype];
    struct guarded bytes = guarded_new(dtype_bytes(dtype, values) + 1);
    for (size_t at = 0; at < values; at += (size_t)info->block) {
        uint8_t *block = (uint8_t *)bytes.data + 1 + dtype_bytes(dtype, at);
        float decoded[256];
        bool ordinary = false;
        while (!ordinary) {
            for (int i = 0; i < info->block_bytes; i++)
                block[i] = (uint8_t)random_next(seed);
            weight_decode(dtype, block, (size_t)info->block, decoded);
            ordinary = true;
            for (int i = 0; i < info->block; i++)
                ordinary &= fabsf(decoded[i]) < 100;
        }
    }
    return bytes;
}

static struct weight random_weight(uint64_t *seed, enum dtype dtype, int rows, int cols, struct guarded *bytes)
{
    *bytes = random_weights(seed, dtype, (size_t)rows * (size_t)cols);
    return (struct weight){ .dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .data = (uint8_t *)bytes->data + 1,
                            .scale = 0.5f + fabsf(random_real(seed)) };
}

static void check_linear(const struct linear_output *output, const float *x, int in, int tokens)
{
    float *row = malloc((size_t)in * sizeof *row);
    for (int out = 0; out < output->weight.rows; out++) {
        size_t row_bytes = dtype_bytes(output->weight.dtype, (size_t)in);
        weight_decode(output->weight.dtype, (const char *)output->weight.data + (size_t)out * row_bytes, (size_t)in,
                      row);
        for (int token = 0; token < tokens; token++) {
            double sum = 0, size = 0;
            for (int i = 0; i < in; i++) {
                sum += (double)row[i] * x[token * in + i];
                size += fabs((double)row[i] * x[token * in + i]);
            }
            double bias = output->bias ? output->bias[out] : 0;
            check_near(output->y[token * output->weight.rows + out], sum * output->weight.scale + bias,
                       (in + 4) * epsilon * size * output->weight.scale + epsilon * fabs(bias));
        }
    }
    free(row);
}

// One token by itself has the same bits as among others.
static void check_linear_alone(struct linear_args args, int token)
{
    struct guarded alone[LINEAR_OUTPUTS_MAX];
    float *together[LINEAR_OUTPUTS_MAX];
    args.rows = &(int){ 1 };
    args.x += (size_t)token * (size_t)args.in;
    for (int i = 0; i < args.outputs; i++) {
        alone[i] = guarded_floats((size_t)args.output[i].weight.rows);
        together[i] = args.output[i].y + token * args.output[i].weight.rows;
        args.output[i].y = alone[i].data;
    }
    linear_ref(&args, 0, 1);
    for (int i = 0; i < args.outputs; i++) {
        assert_memory_equal(alone[i].data, together[i], alone[i].bytes);
        guarded_free(&alone[i]);
    }
}

static void try_linear(uint64_t *seed, const enum dtype *dtypes, int outputs, int in, int tokens)
{
    struct guarded x = guarded_random(seed, (size_t)(tokens * in));
    struct guarded weights[LINEAR_OUTPUTS_MAX], biases[LINEAR_OUTPUTS_MAX], y[LINEAR_OUTPUTS_MAX];
    struct linear_args args = { .rows = &tokens, .x = x.data, .in = in, .outputs = outputs };
    struct run run = { .run = linear_ref, .args = &args };
    for (int i = 0; i < outputs; i++) {
        int rows = random_between(seed, 1, 13);
        biases[i] = guarded_random(seed, (size_t)rows);
        y[i] = guarded_floats((size_t)(tokens * rows));
        args.output[i] = (struct linear_output){ .weight = random_weight(seed, dtypes[i], rows, in, &weights[i]),
                                                 .bias = random_between(seed, 0, 1) ? biases[i].data : NULL,
                                                 .y = y[i].data };
        run.outs[i] = &y[i];
    }
    run_kernel(run);
    for (int i = 0; i < outputs; i++)
        check_linear(&args.output[i], x.data, in, tokens);
    for (int token = 0; token < tokens; token++)
        check_linear_alone(args, token);
    for (int i = 0; i < outputs; i++)
        guarded_free(&weights[i]), guarded_free(&biases[i]), guarded_free(&y[i]);
    guarded_free(&x);
}

static void test_linear(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        int block = dtype_table[dtype].block;
        for (int tokens = 0; is_weight(dtype) && tokens <= ROWS_MAX; tokens++) {
            int in = block * random_between(&seed, 1, block == 1 ? 70 : block < 256 ? 4 : 2);
            enum dtype dtypes[LINEAR_OUTPUTS_MAX] = { dtype };
            for (int i = 1; i < LINEAR_OUTPUTS_MAX; i++) { // the others may have other formats
                do
                    dtypes[i] = (enum dtype)random_between(&seed, 0, DTYPE_COUNT - 1);
                while (!is_weight(dtypes[i]) || in % dtype_table[dtypes[i]].block);
            }
            try_linear(&seed, dtypes, random_between(&seed, 1, LINEAR_OUTPUTS_MAX), in, tokens);
        }
    }
    try_linear(&seed, (const enum dtype[]){ DTYPE_Q8_0 }, 1, LINEAR_IN_MAX, 2);
}

static void test_embed(void **state)
{
    (void)state;
    enum { ROWS = 9 };
    uint64_t seed = 2;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        if (!is_weight(dtype))
            continue;
        int width = dtype_table[dtype].block * 2, ids[ROWS_MAX] = { 28, 20, 23, 19, 29 };
        struct guarded bytes, out = guarded_floats((size_t)(ROWS_MAX * width));
        struct batch batch = { .tokens = ROWS_MAX, .ids = ids };
        struct embed_args args = { .batch = &batch,
                                   .table = random_weight(&seed, dtype, ROWS, width, &bytes),
                                   .first = 20,
                                   .scale = 1.5f,
                                   .out = out.data };
        run_kernel((struct run){ embed_ref, &args, { &out } });
        for (int row = 0; row < ROWS_MAX; row++) {
            float values[512] = { 0 };
            int at = ids[row] - args.first;
            if (at >= 0 && at < ROWS) // the table has no other tokens
                weight_decode(dtype, (const char *)args.table.data + dtype_bytes(dtype, (size_t)(at * width)),
                              (size_t)width, values);
            for (int i = 0; i < width; i++) {
                double expected = 1.5 * args.table.scale * values[i];
                check_near(args.out[row * width + i], expected, 2 * epsilon * fabs(expected));
            }
        }
        guarded_free(&out), guarded_free(&bytes);
    }
}

// ---- element by element ----

static void test_norm(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 60; round++) {
        int rows = round % (ROWS_MAX + 1), groups = random_between(&seed, 1, 4), width = random_between(&seed, 1, 70);
        size_t count = (size_t)(rows * groups * width);
        struct guarded x = guarded_random(&seed, count), weight = guarded_random(&seed, (size_t)width),
                       out = guarded_floats(count), original = guarded_floats(count);
        memcpy(original.data, x.data, x.bytes);
        bool in_place = round % 2;
        struct norm_args args = { .rows = &rows,
                                  .x = x.data,
                                  .weight = weight.data,
                                  .groups = groups,
                                  .width = width,
                                  .out = in_place ? x.data : out.data,
                                  .epsilon = round % 3 ? 1e-6f : 0.1f };
        run_kernel((struct run){ norm_ref, &args, { in_place ? &x : &out } });
        for (size_t group = 0; group < count / (size_t)width; group++) {
            const float *from = (const float *)original.data + group * (size_t)width;
            double squares = 0;
            for (int i = 0; i < width; i++)
                squares += (double)from[i] * from[i];
            for (int i = 0; i < width; i++) {
                double expected = from[i] / sqrt(squares / width + args.epsilon) * args.weight[i];
                check_near(args.out[group * (size_t)width + (size_t)i], expected,
                           (width + 4) * epsilon * fabs(expected));
            }
        }
        guarded_free(&x), guarded_free(&weight), guarded_free(&out), guarded_free(&original);
    }
}

// One head's vector before and after.
static void check_turned(const struct rope_args *args, const float *from, const float *to, int position)
{
    int pairs = args->rotated / 2;
    for (int i = 0; i < pairs; i++) {
        double angle = (double)position * args->frequencies[i];
        double a = from[args->interleaved ? 2 * i : i], b = from[args->interleaved ? 2 * i + 1 : i + pairs];
        double tolerance = (fabs(a) + fabs(b)) * args->magnitude * epsilon * (angle + 4);
        check_near(to[i], args->magnitude * (a * cos(angle) - b * sin(angle)), tolerance);
        check_near(to[i + pairs], args->magnitude * (a * sin(angle) + b * cos(angle)), tolerance);
    }
    assert_memory_equal(to + args->rotated, from + args->rotated,
                        (size_t)(args->head_dim - args->rotated) * sizeof *to);
}

static void test_rope(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 60; round++) {
        int heads = random_between(&seed, 1, 4), kv_heads = random_between(&seed, 1, 2), tokens = round % 6;
        int dim = 2 * random_between(&seed, 1, round ? 40 : HEAD_DIM_MAX / 2), positions[ROWS_MAX];
        for (int i = 0; i < ROWS_MAX; i++)
            positions[i] = random_between(&seed, 0, 5000);
        struct guarded q = guarded_random(&seed, (size_t)(tokens * heads * dim)), q_before = guarded_new(q.bytes);
        struct guarded k = guarded_random(&seed, (size_t)(tokens * kv_heads * dim)), k_before = guarded_new(k.bytes);
        struct guarded frequencies = guarded_floats((size_t)dim / 2);
        memcpy(q_before.data, q.data, q.bytes);
        memcpy(k_before.data, k.data, k.bytes);
        for (int i = 0; i < dim / 2; i++)
            ((float *)frequencies.data)[i] = fabsf(random_real(&seed));
        struct batch batch = { .tokens = tokens, .positions = positions };
        struct rope_args args = { .batch = &batch,
                                  .q = q.data,
                                  .k = k.data,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_dim = dim,
                                  .rotated = 2 * random_between(&seed, 0, dim / 2),
                                  .interleaved = round % 2,
                                  .frequencies = frequencies.data,
                                  .magnitude = round % 3 ? 1 : 1.25f };
        run_kernel((struct run){ rope_ref, &args, { &q, &k } });
        for (int i = 0; i < tokens * heads; i++)
            check_turned(&args, (float *)q_before.data + i * dim, args.q + i * dim, positions[i / heads]);
        for (int i = 0; i < tokens * kv_heads; i++)
            check_turned(&args, (float *)k_before.data + i * dim, args.k + i * dim, positions[i / kv_heads]);
        guarded_free(&q), guarded_free(&q_before), guarded_free(&k), guarded_free(&k_before);
        guarded_free(&frequencies);
    }
}

static double activated(enum activation act, double x)
{
    if (act == ACT_SILU)
        return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void test_act_mul(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 37, COUNT = ROWS * WIDTH };
    uint64_t seed = 5;
    for (int round = 0; round < 8; round++) {
        struct guarded gate = guarded_random(&seed, COUNT), up = guarded_random(&seed, COUNT);
        struct guarded before = guarded_floats(COUNT);
        float *values = gate.data;
        for (int i = 0; i < COUNT; i++)
            values[i] *= i % 7 ? 6 : 200; // far out, too
        memcpy(before.data, gate.data, gate.bytes);
        enum activation act = round % 2 ? ACT_SILU : ACT_GELU_TANH;
        struct act_mul_args args = {
            .rows = &(int){ ROWS }, .gate = gate.data, .up = up.data, .out = gate.data, .width = WIDTH, .act = act
        };
        run_kernel((struct run){ act_mul_ref, &args, { &gate } });
        for (int i = 0; i < COUNT; i++) {
            double x = ((float *)before.data)[i], expected = activated(act, x) * args.up[i];
            check_near(values[i], expected, 8 * epsilon * fabs(x * args.up[i]) + 1e-30);
        }
        guarded_free(&gate), guarded_free(&up), guarded_free(&before);
    }
}

static void test_add_and_softcap(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 41, COUNT = ROWS * WIDTH };
    uint64_t seed = 6;
    int rows = ROWS;
    struct guarded x = guarded_random(&seed, COUNT), y = guarded_random(&seed, COUNT), before = guarded_floats(COUNT);
    memcpy(before.data, x.data, x.bytes);
    struct add_args add = { .rows = &rows, .x = x.data, .y = y.data, .width = WIDTH };
    run_kernel((struct run){ add_ref, &add, { &x } });
    for (int i = 0; i < COUNT; i++)
        assert_true(add.x[i] == ((float *)before.data)[i] + add.y[i]);

    for (int i = 0; i < COUNT; i++)
        add.x[i] *= 100;
    memcpy(before.data, x.data, x.bytes);
    struct softcap_args cap = { .rows = &rows, .x = x.data, .width = WIDTH, .cap = 30 };
    run_kernel((struct run){ softcap_ref, &cap, { &x } });
    for (int i = 0; i < COUNT; i++) {
        double expected = 30 * tanh(((float *)before.data)[i] / 30.0);
        check_near(cap.x[i], expected, 8 * epsilon * fabs(expected));
    }
    guarded_free(&x), guarded_free(&y), guarded_free(&before);
}

static void test_pick(void **state)
{
    (void)state;
    enum { WIDTH = 11 };
    static const int32_t wanted[] = { 4, 0, 2 };
    uint64_t seed = 7;
    struct guarded x = guarded_random(&seed, ROWS_MAX * WIDTH), out = guarded_floats(COUNT_OF(wanted) * WIDTH);
    for (int count = 0; count <= (int)COUNT_OF(wanted); count++) {
        struct batch batch = { .tokens = ROWS_MAX, .outputs = count, .output_rows = wanted };
        struct pick_args args = { .batch = &batch, .x = x.data, .out = out.data, .width = WIDTH };
        memset(out.data, GUARD, out.bytes);
        run_kernel((struct run){ pick_ref, &args, { &out } });
        for (int i = 0; i < count; i++)
            assert_memory_equal(args.out + i * WIDTH, args.x + wanted[i] * WIDTH, WIDTH * sizeof(float));
        if (count < (int)COUNT_OF(wanted))
            assert_int_equal(((uint8_t *)(args.out + count * WIDTH))[0], GUARD);
    }
    guarded_free(&x), guarded_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_its_definition),
        cmocka_unit_test(test_shares_are_even_and_whole),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_act_mul),
        cmocka_unit_test(test_add_and_softcap),
        cmocka_unit_test(test_pick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
