// SPDX-License-Identifier: Apache-2.0
// kernel/ref/experts.c: mixture of experts, the reference: top-k routing, the experts' matrices as a grouped GEMM, and
// the weighted sum (combine).
#include "kernel/ref/experts.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernel/ref/dot.h"
#include "kernel/ref/table.h"
#include "kernel/ref/weight.h"

// ---- route ----

static void score_experts(const struct route_args *args, const float *logits, float *scores)
{
    int experts = args->routes.experts;
    float largest = logits[0], sum = 0;
    for (int i = 1; i < experts; i++)
        largest = fmaxf(largest, logits[i]);
    for (int i = 0; i < experts; i++) {
        scores[i] = args->score == ROUTE_SOFTMAX ? expf(logits[i] - largest) : 1 / (1 + expf(-logits[i]));
        sum += scores[i];
    }
    for (int i = 0; i < experts && args->score == ROUTE_SOFTMAX; i++)
        scores[i] /= sum;
}

// Top-k: the indices of the `count` highest values, descending, ties to the lower index. The indices are distinct even
// if values are NaN.
static void take_highest(const float *values, int all, int count, int32_t *taken)
{
    bool used[EXPERTS_MAX] = { 0 };
    for (int i = 0; i < count; i++) {
        int best = -1;
        for (int j = 0; j < all; j++)
            if (!used[j] && (best < 0 || values[j] > values[best]))
                best = j;
        used[best] = true;
        taken[i] = best;
    }
}

// Group-limited routing (DeepSeek): experts outside the best groups become -infinity.
static void drop_groups(const struct route_args *args, float *ranks)
{
    int each = args->routes.experts / args->groups;
    float sums[EXPERTS_MAX];
    int32_t chosen[EXPERTS_MAX], best[EXPERTS_MAX];
    bool looked_at[EXPERTS_MAX] = { 0 };
    for (int group = 0; group < args->groups; group++) {
        take_highest(ranks + group * each, each, args->group_best, best);
        sums[group] = 0;
        for (int i = 0; i < args->group_best; i++)
            sums[group] += ranks[group * each + best[i]];
    }
    take_highest(sums, args->groups, args->topk_group, chosen);
    for (int i = 0; i < args->topk_group; i++)
        looked_at[chosen[i]] = true;
    for (int i = 0; i < args->routes.experts; i++)
        ranks[i] = looked_at[i / each] ? ranks[i] : -INFINITY;
}

static void route_token(const struct route_args *args, int row)
{
    const struct routes *routes = &args->routes;
    int experts = routes->experts, top_k = routes->top_k;
    float scores[EXPERTS_MAX], ranks[EXPERTS_MAX], sum = 0;
    int32_t *expert = routes->expert + (size_t)row * (size_t)top_k;
    float *weight = routes->weight + (size_t)row * (size_t)top_k;
    score_experts(args, args->logits + (size_t)row * (size_t)experts, scores);
    for (int i = 0; i < experts; i++)
        ranks[i] = scores[i] + (args->bias ? args->bias[i] : 0);
    if (args->groups > 1)
        drop_groups(args, ranks);
    take_highest(ranks, experts, top_k, expert);
    for (int i = 0; i < top_k; i++)
        sum += scores[expert[i]];
    for (int i = 0; i < top_k; i++)
        weight[i] = scores[expert[i]] / (args->normalise ? sum : 1) * args->scale;
}

void route_prepare_ref(const void *arguments, int chunk, int chunks)
{
    const struct route_args *args = arguments;
    int first, end;
    assert(args->routes.experts <= EXPERTS_MAX && args->routes.top_k <= args->routes.experts);
    kernel_range(*args->rows, chunk, chunks, &first, &end);
    for (int row = first; row < end; row++)
        route_token(args, row);
}

void experts_order(const struct routes *routes, int rows)
{
    int pairs = rows * routes->top_k, next[EXPERTS_MAX];
    memset(routes->first, 0, ((size_t)routes->experts + 1) * sizeof *routes->first);
    for (int i = 0; i < pairs; i++)
        routes->first[routes->expert[i] + 1]++;
    for (int i = 0; i < routes->experts; i++) {
        next[i] = routes->first[i];
        routes->first[i + 1] += routes->first[i];
    }
    for (int i = 0; i < pairs; i++)
        routes->pair[next[routes->expert[i]]++] = i;
}

// Cheap enough for a single thread.
void route_ref(const void *arguments, int chunk, int chunks)
{
    const struct route_args *args = arguments;
    (void)chunks;
    if (chunk == 0)
        experts_order(&args->routes, *args->rows);
}

// ---- experts ----

// One dequantised row of an expert's matrix, times the activations of all its pairs.
static void expert_row(const struct experts_args *args, const struct experts_output *output, int expert, int row,
                       const float *weights)
{
    const struct routes *routes = &args->routes;
    int rows = output->weight.rows;
    float scale = output->weight.scale * (output->scales ? output->scales[expert] : 1);
    float bias = output->bias ? output->bias[(size_t)expert * (size_t)rows + (size_t)row] : 0;
    for (int i = routes->first[expert]; i < routes->first[expert + 1]; i++) {
        size_t pair = (size_t)routes->pair[i], at = args->x_per_slot ? pair : pair / (size_t)routes->top_k;
        output->y[pair * (size_t)rows + (size_t)row] = dot(weights, args->x + at * (size_t)args->in, args->in) * scale
            + bias;
    }
}

void experts_ref(const void *arguments, int chunk, int chunks)
{
    const struct experts_args *args = arguments;
    assert(args->in <= LINEAR_IN_MAX);
    float weights[args->in];
    for (int i = 0; i < args->outputs; i++) {
        const struct weight *weight = &args->output[i].weight;
        size_t row_bytes = dtype_bytes(weight->dtype, (size_t)args->in);
        int first, end;
        kernel_range(weight->rows, chunk, chunks, &first, &end);
        for (int expert = 0; expert < args->routes.experts; expert++) {
            bool in_use = args->routes.first[expert] < args->routes.first[expert + 1];
            for (int row = first; row < end && in_use; row++) {
                size_t at = (size_t)expert * (size_t)weight->rows + (size_t)row;
                weight_decode(weight->dtype, (const char *)weight->data + at * row_bytes, (size_t)args->in, weights);
                expert_row(args, &args->output[i], expert, row, weights);
            }
        }
    }
}

// ---- combine ----

// Columns [first, end) of one row.
static void combine_columns(const struct combine_args *args, size_t row, size_t first, size_t end)
{
    size_t width = (size_t)args->width, top_k = (size_t)args->routes.top_k;
    float *restrict out = args->out + row * width;
    memset(out + first, 0, (end - first) * sizeof *out);
    for (size_t slot = 0; slot < top_k; slot++) {
        const float *x = args->x + (row * top_k + slot) * width;
        float weight = args->routes.weight[row * top_k + slot];
        for (size_t i = first; i < end; i++)
            out[i] += weight * x[i];
    }
}

void combine_ref(const void *arguments, int chunk, int chunks)
{
    const struct combine_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    for (int next; first < end; first = next) {
        int row = first / args->width, column = first % args->width;
        next = end - first < args->width - column ? end : first + args->width - column;
        combine_columns(args, (size_t)row, (size_t)column, (size_t)(column + next - first));
    }
}
