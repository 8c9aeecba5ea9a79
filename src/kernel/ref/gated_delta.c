// SPDX-License-Identifier: Apache-2.0
// kernel/ref/gated_delta.c: the gated delta rule. Tokens of a sequence come one after the other, whatever else is in
// the
// step; work is shared by sequences and heads. Each value of a head has its own column of the matrix, which depends on
// no other: sums run over keys in their order.
#include "kernel/ref/gated_delta.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernel/ref/dot.h"
#include "kernel/ref/ssm.h"
#include "kernel/ref/table.h"

// Scales x to this L2 norm.
static void scale_to(const float *x, int count, float length, float *out)
{
    float factor = length / sqrtf(dot(x, x, count) + GATED_DELTA_EPSILON);
    for (int i = 0; i < count; i++)
        out[i] = x[i] * factor;
}

void delta_step_of(const struct gated_delta_args *args, int row, int head, struct delta_step *out)
{
    const struct kv_state *layout = &args->state.layout;
    int keys = layout->keys, group = args->interleaved ? head % args->groups : head / (layout->heads / args->groups);
    size_t all_keys = (size_t)args->groups * (size_t)keys, inner = (size_t)layout->heads * (size_t)layout->values;
    size_t at = (size_t)row * (size_t)layout->heads + (size_t)head;
    const float *mixed = args->mixed + (size_t)row * (2 * all_keys + inner);
    assert(keys <= GATED_DELTA_KEYS_MAX);
    scale_to(mixed + group * keys, keys, 1 / sqrtf((float)keys), out->query);
    scale_to(mixed + all_keys + group * keys, keys, 1, out->key);
    float dt = args->dt[at] + args->dt_bias[head];
    dt = dt > SCAN_SOFTPLUS_LINEAR ? dt : log1pf(expf(dt));
    out->decay = expf(args->a[head] * dt);
    out->beta = 1 / (1 + expf(-args->beta[at]));
    out->value = mixed + 2 * all_keys + (size_t)head * (size_t)layout->values;
    out->out = args->out + at * (size_t)layout->values;
}

// One token: S = decay S + beta k (v - decay S k)^T, then out = S q.
static void delta_update(const struct delta_step *step, int keys, int values, float *matrix)
{
    for (int value = 0; value < values; value++) {
        float predicted = 0, sum = 0;
        for (int key = 0; key < keys; key++)
            predicted += matrix[key * values + value] * step->key[key];
        float change = step->beta * (step->value[value] - step->decay * predicted);
        for (int key = 0; key < keys; key++) {
            float *s = &matrix[key * values + value];
            *s = step->decay * *s + step->key[key] * change;
            sum += *s * step->query[key];
        }
        step->out[value] = sum;
    }
}

void gated_delta_ref(const void *arguments, int chunk, int chunks)
{
    const struct gated_delta_args *args = arguments;
    const struct kv_state *layout = &args->state.layout;
    int first, end;
    kernel_range(args->batch->sequences * layout->heads, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++) {
        const struct batch_sequence *sequence = &args->batch->sequence[i / layout->heads];
        float *matrix = scan_begin(&args->state, args->batch, sequence, i % layout->heads);
        for (int row = sequence->first; row < sequence->first + sequence->count; row++) {
            struct delta_step step;
            delta_step_of(args, row, i % layout->heads, &step);
            delta_update(&step, layout->keys, layout->values, matrix);
        }
    }
}
