// SPDX-License-Identifier: Apache-2.0
// kernel/testcase_experts.c: test cases of route, experts and combine. A pair in the order that route gives is read as
// the expert among whose pairs it stands: that is right or wrong, whatever the tokens beside it.
#include <math.h>
#include <string.h>

#include "kernel/ref/experts.h"
#include "kernel/testcase_draw.h"

enum { LARGE_BYTES = 64 << 20, LARGE_EXPERTS = 32, LARGE_TOP_K = 8, LARGE_IN = 2048, LARGE_OUT = 1536 };
enum { ROUTE_EXPERT, ROUTE_WEIGHT, ROUTE_PAIR, ROUTE_FIRST }; // outputs of route

static struct routes draw_counts(struct draw *draw, int experts_max)
{
    struct routes routes = { .experts = draw_size(draw, 1, experts_max, LARGE_EXPERTS) };
    int most = routes.experts < 6 ? routes.experts : 6;
    routes.top_k = draw_size(draw, 1, most, LARGE_TOP_K);
    return routes;
}

// Each token chooses at random.
static void draw_routes(struct draw *draw, struct routes *routes, int rows)
{
    struct arena *arena = &draw->testcase->arena;
    int pairs = rows * routes->top_k;
    routes->expert = ARENA_NEW(arena, int32_t, pairs);
    routes->pair = ARENA_NEW(arena, int32_t, pairs);
    routes->first = ARENA_NEW(arena, int32_t, routes->experts + 1);
    routes->weight = draw_values(draw, rows, routes->top_k);
    for (int row = 0; row < rows; row++) {
        int32_t *expert = routes->expert + row * routes->top_k;
        int start = random_between(&draw->seed, 0, routes->experts - 1), step = 1;
        while (step * routes->top_k < routes->experts && random_between(&draw->seed, 0, 2))
            step++;
        for (int i = 0; i < routes->top_k; i++) // no two alike: less than once around
            expert[i] = (start + i * step) % routes->experts;
    }
    experts_order(routes, rows);
}

// ---- route ----

// Logits of which no two are so near each other that roundings could decide.
static float *draw_logits(struct draw *draw, int rows, int experts)
{
    float *logits = draw_values(draw, rows, experts);
    for (int row = 0; row < rows; row++) {
        int start = random_between(&draw->seed, 0, experts - 1);
        for (int i = 0; i < experts; i++) {
            int rank = (int)((unsigned)(start + i) * 7919u % (unsigned)experts);
            logits[(size_t)row * (size_t)experts + (size_t)i] = 0.05f * (float)rank - 2;
        }
    }
    return logits;
}

static void draw_groups(struct draw *draw, struct route_args *args)
{
    int experts = args->routes.experts;
    args->groups = args->topk_group = args->group_best = 1;
    if (experts % 4 || experts < 8 || !draw_coin(draw))
        return;
    args->groups = 4;
    args->topk_group = draw_size(draw, 1, 3, 2);
    args->group_best = draw_size(draw, 1, 2, 2);
    if (args->topk_group * (experts / 4) < args->routes.top_k)
        args->topk_group = args->groups;
}

void draw_route(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct route_args *args = &testcase->args.route;
    int rows = testcase->rows = draw_tokens(draw, 512);
    args->rows = &testcase->rows;
    args->routes = draw_counts(draw, draw_coin(draw) ? 200 : 12);
    struct routes *routes = &args->routes;
    draw_groups(draw, args);
    args->logits = draw_logits(draw, rows, routes->experts);
    args->bias = draw_coin(draw) ? draw_values(draw, 1, routes->experts) : NULL;
    args->score = draw_coin(draw) ? ROUTE_SIGMOID : ROUTE_SOFTMAX;
    args->normalise = draw_coin(draw);
    args->scale = draw_coin(draw) ? 2.5f : 1;
    routes->expert = (int32_t *)(void *)draw_output(draw, rows, routes->top_k);
    routes->weight = draw_output(draw, rows, routes->top_k);
    routes->pair = (int32_t *)(void *)draw_output(draw, rows, routes->top_k);
    size_t first_bytes = ((size_t)routes->experts + 1) * sizeof *routes->first;
    routes->first = (int32_t *)(void *)draw_output_bytes(draw, first_bytes, 0);
}

bool is_order(const struct testcase *testcase, int output) { return testcase->op == OP_ROUTE && output >= ROUTE_PAIR; }

void read_order(const struct testcase *testcase, int output, float *values)
{
    const struct routes *routes = &testcase->args.route.routes;
    int pairs = testcase->rows * routes->top_k;
    if (output != ROUTE_PAIR)
        return;
    for (int i = 0; i < pairs; i++)
        values[i] = NAN;
    for (int expert = 0; expert < routes->experts; expert++)
        for (int i = routes->first[expert]; i >= 0 && i < routes->first[expert + 1] && i < pairs; i++)
            if (routes->pair[i] >= 0 && routes->pair[i] < pairs)
                values[routes->pair[i]] = (float)expert;
}

// ---- experts ----

static void draw_experts_output(struct draw *draw, int index, enum dtype dtype)
{
    struct testcase *testcase = draw->testcase;
    struct experts_args *args = &testcase->args.experts;
    struct experts_output *output = &args->output[index];
    const struct routes *routes = &args->routes;
    bool on_cpu = draw->kernel->device == DEVICE_CPU, decode = draw_is_decode(draw);
    int large = on_cpu && decode ? LARGE_BYTES / LARGE_TOP_K / (int)dtype_bytes(dtype, LARGE_IN) : LARGE_OUT;
    int rows = draw_size(draw, 1, on_cpu ? 40 : 200, large);
    output->weight = draw_weight(draw, dtype, routes->experts * rows, args->in);
    output->weight.rows = rows;
    output->scales = draw_coin(draw) ? draw_values(draw, 1, routes->experts) : NULL;
    output->bias = draw_coin(draw) ? draw_values(draw, routes->experts, rows) : NULL;
    output->y = draw_output(draw, testcase->rows, routes->top_k * rows);
    int used = 0;
    for (int i = 0; i < routes->experts; i++)
        used += routes->first[i] < routes->first[i + 1];
    testcase->bytes_moved += dtype_bytes(dtype, (size_t)used * (size_t)rows * (size_t)args->in);
    testcase->flops += 2.0 * testcase->rows * routes->top_k * rows * args->in;
}

void draw_experts(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct experts_args *args = &testcase->args.experts;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block;
    if (draw->kernel->cols_multiple > block)
        block = draw->kernel->cols_multiple;
    testcase->rows = draw_tokens(draw, 512);
    args->rows = &testcase->rows;
    args->routes = draw_counts(draw, 9);
    draw_routes(draw, &args->routes, testcase->rows);
    args->in = block * draw_size(draw, 1, block > 1 ? (512 + block) / block : 400, LARGE_IN / block);
    args->x_per_slot = draw_coin(draw);
    int x_width = args->in * (args->x_per_slot ? args->routes.top_k : 1);
    args->x = draw_values(draw, testcase->rows, x_width);
    args->outputs = draw_size(draw, 1, EXPERTS_OUTPUTS_MAX, 1);
    for (int i = 0; i < args->outputs; i++)
        draw_experts_output(draw, i, draw_matrix_dtype(draw, i, args->in));
}

// ---- combine ----

void draw_combine(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct combine_args *args = &testcase->args.combine;
    testcase->rows = draw_tokens(draw, 512);
    args->rows = &testcase->rows;
    args->routes = draw_counts(draw, 9);
    draw_routes(draw, &args->routes, testcase->rows);
    args->width = draw_size(draw, 1, 300, LARGE_IN);
    args->x = draw_values(draw, testcase->rows, args->routes.top_k * args->width);
    args->out = draw_output(draw, testcase->rows, args->width);
    args->f32_out = draw_coin(draw);
}
