// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: the reference kernels of route, experts and combine against plain definitions.
#include <math.h>

#include "container.h"
#include "kernel/ref/experts.h"
#include "kernel/ref/table.h"
#include "kernel_run.h"

enum { EXPERTS = 8, TOP_K = 3, ROWS = 5 };

// The outputs of route.
struct choices {
    int32_t expert[ROWS * TOP_K], pair[ROWS * TOP_K], first[EXPERTS + 1];
    float weight[ROWS * TOP_K];
};

static struct route_args route_into(struct choices *choices, const int *rows, const float *logits)
{
    return (struct route_args){ .rows = rows,
                                .logits = logits,
                                .groups = 1,
                                .topk_group = 1,
                                .group_best = 1,
                                .scale = 1,
                                .routes = { EXPERTS, TOP_K, choices->expert, choices->weight, choices->first,
                                            choices->pair } };
}

static void run_route(const struct route_args *args, int chunks)
{
    for (int chunk = chunks - 1; chunk >= 0; chunk--)
        route_prepare_ref(args, chunk, chunks);
    for (int chunk = chunks - 1; chunk >= 0; chunk--)
        route_ref(args, chunk, chunks);
}

// ---- route ----

static const float logits[EXPERTS] = { 1, -1, 3, 0.5f, 3, -2, 2, 0 };
static const int one_row = 1;

static void test_softmax_chooses_the_highest(void **state)
{
    (void)state;
    struct choices choices;
    struct route_args args = route_into(&choices, &one_row, logits);
    double sum = 0, of_top_k = exp(3) + exp(3) + exp(2);
    for (int i = 0; i < EXPERTS; i++)
        sum += exp(logits[i]);
    for (int normalised = 0; normalised <= 1; normalised++) {
        args.normalise = normalised;
        args.scale = normalised ? 2.5f : 1;
        run_route(&args, 1);
        static const int32_t expected[TOP_K] = { 2, 4, 6 }; // of equals the first
        assert_memory_equal(choices.expert, expected, sizeof expected);
        for (int i = 0; i < TOP_K; i++) {
            double weight = exp(logits[expected[i]]) / (normalised ? of_top_k : sum) * (double)args.scale;
            check_near(choices.weight[i], weight, 16 * epsilon * weight);
        }
    }
}

static void test_a_bias_counts_for_the_choice_alone(void **state)
{
    (void)state;
    static const float bias[EXPERTS] = { 0, 0, 0, 0, 0, 2, 0, 0 };
    struct choices choices;
    struct route_args args = route_into(&choices, &one_row, logits);
    args.score = ROUTE_SIGMOID;
    args.bias = bias;
    run_route(&args, 1);
    assert_int_equal(choices.expert[0], 5);
    assert_int_equal(choices.expert[1], 2);
    check_near(choices.weight[0], 1 / (1 + exp(2)), 16 * epsilon);
    check_near(choices.weight[1], 1 / (1 + exp(-3)), 16 * epsilon);
}

// Four groups of two. By their best: 2 (3) and 4 (3) win; by their two best: the pair of 2 and 3, and that of 6 and 7.
static void test_groups_are_left_out(void **state)
{
    (void)state;
    struct choices choices;
    struct route_args args = route_into(&choices, &one_row, logits);
    args.score = ROUTE_SIGMOID;
    args.groups = 4;
    args.topk_group = 2;
    run_route(&args, 1);
    assert_true(choices.expert[0] == 2 && choices.expert[1] == 4 && choices.expert[2] == 3);
    args.group_best = 2;
    run_route(&args, 1);
    assert_true(choices.expert[0] == 2 && choices.expert[1] == 6 && choices.expert[2] == 3);
}

static void check_order(const struct choices *choices, int rows)
{
    assert_int_equal(choices->first[0], 0);
    assert_int_equal(choices->first[EXPERTS], rows * TOP_K);
    for (int expert = 0; expert < EXPERTS; expert++)
        for (int i = choices->first[expert]; i < choices->first[expert + 1]; i++) {
            assert_int_equal(choices->expert[choices->pair[i]], expert);
            assert_true(i == choices->first[expert] || choices->pair[i - 1] < choices->pair[i]);
        }
}

// Whatever the logits are, and however many callers there are.
static void test_pairs_stand_with_their_experts(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 50; seed++) {
        uint64_t random = seed;
        float drawn[ROWS * EXPERTS];
        int rows = (int)(seed % (ROWS + 1));
        struct choices choices, in_parts;
        random_fill(&random, drawn, ROWS * EXPERTS);
        drawn[seed % COUNT_OF(drawn)] = NAN;
        drawn[seed * 7 % COUNT_OF(drawn)] = INFINITY;
        drawn[seed * 11 % COUNT_OF(drawn)] = -INFINITY;
        struct route_args args = route_into(&choices, &rows, drawn);
        run_route(&args, 1);
        check_order(&choices, rows);
        for (int i = 0; i < rows * TOP_K; i++)
            for (int j = i + 1; j < (i / TOP_K + 1) * TOP_K; j++)
                assert_int_not_equal(choices.expert[i], choices.expert[j]);
        args = route_into(&in_parts, &rows, drawn);
        run_route(&args, 3);
        size_t count = (size_t)(rows * TOP_K);
        assert_memory_equal(in_parts.expert, choices.expert, count * sizeof *choices.expert);
        assert_memory_equal(in_parts.pair, choices.pair, count * sizeof *choices.pair);
    }
}

// ---- experts and combine ----

enum { IN = 13, OUT = 7 };

static double expected_value(const struct experts_args *args, int pair, int row)
{
    const struct experts_output *output = &args->output[0];
    const float *weights = output->weight.data, *x = args->x + (args->x_per_slot ? pair : pair / TOP_K) * IN;
    int expert = args->routes.expert[pair];
    double sum = 0;
    for (int i = 0; i < IN; i++)
        sum += (double)weights[(expert * OUT + row) * IN + i] * (double)x[i];
    return sum * 0.5 * (output->scales ? (double)output->scales[expert] : 1)
        + (output->bias ? (double)output->bias[expert * OUT + row] : 0);
}

static void test_experts(void **state)
{
    (void)state;
    uint64_t seed = 3;
    int rows = ROWS;
    struct choices choices;
    struct guarded drawn = guarded_random(&seed, ROWS * EXPERTS), x = guarded_random(&seed, ROWS * TOP_K * IN),
                   weights = guarded_random(&seed, EXPERTS * OUT * IN), bias = guarded_random(&seed, EXPERTS * OUT),
                   scales = guarded_random(&seed, EXPERTS), y = guarded_floats(ROWS * TOP_K * OUT);
    struct route_args route = route_into(&choices, &rows, drawn.data);
    run_route(&route, 1);
    for (int form = 0; form < 8; form++) {
        struct experts_args args = {
            .rows = &rows, .x = x.data, .x_per_slot = form & 1, .in = IN, .routes = route.routes, .outputs = 1
        };
        args.output[0] = (struct experts_output){ .weight = { DTYPE_F32, OUT, IN, weights.data, 0.5f },
                                                  .scales = form & 2 ? scales.data : NULL,
                                                  .bias = form & 4 ? bias.data : NULL,
                                                  .y = y.data };
        run_kernel((struct run){ experts_ref, &args, { &y } });
        for (int i = 0; i < ROWS * TOP_K * OUT; i++)
            check_near(args.output[0].y[i], expected_value(&args, i / OUT, i % OUT), 1e-5);
    }
    guarded_free(&drawn), guarded_free(&x), guarded_free(&weights);
    guarded_free(&bias), guarded_free(&scales), guarded_free(&y);
}

static void test_combine(void **state)
{
    (void)state;
    uint64_t seed = 4;
    int rows = ROWS;
    struct choices choices = { { 0 } };
    struct guarded x = guarded_random(&seed, ROWS * TOP_K * OUT), out = guarded_floats(ROWS * OUT);
    random_fill(&seed, choices.weight, ROWS * TOP_K);
    struct combine_args args = { .rows = &rows,
                                 .x = x.data,
                                 .out = out.data,
                                 .width = OUT,
                                 .routes = { .experts = EXPERTS, .top_k = TOP_K, .weight = choices.weight } };
    run_kernel((struct run){ combine_ref, &args, { &out } });
    for (int i = 0; i < ROWS * OUT; i++) {
        double sum = 0;
        for (int slot = 0; slot < TOP_K; slot++)
            sum += (double)choices.weight[i / OUT * TOP_K + slot]
                * (double)args.x[(i / OUT * TOP_K + slot) * OUT + i % OUT];
        check_near(args.out[i], sum, 1e-5);
    }
    guarded_free(&x), guarded_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_chooses_the_highest),
        cmocka_unit_test(test_a_bias_counts_for_the_choice_alone),
        cmocka_unit_test(test_groups_are_left_out),
        cmocka_unit_test(test_pairs_stand_with_their_experts),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_combine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
