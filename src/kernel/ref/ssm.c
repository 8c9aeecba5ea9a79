// SPDX-License-Identifier: Apache-2.0
// kernel/ref/ssm.c: Mamba 2's causal convolution and selective scan (SSD), recurrent form; the reference. A sequence's
// tokens are computed in order. Work is divided by channels, and by heads.
#include "kernel/state.h"

#include <math.h>
#include <string.h>

#include "kernel/ref/ssm.h"
#include "kernel/ref/table.h"

// ---- conv ----

// A sequence's inputs to the convolution: index >= 0 is a row of this step, a negative index is in the state.
struct inputs {
    const float *x, *state; // state is NULL at the sequence's start
    int kept, channels;
};

static float input_of(const struct inputs *inputs, int index, int channel)
{
    if (index >= 0)
        return inputs->x[(size_t)index * (size_t)inputs->channels + (size_t)channel];
    return inputs->state ? inputs->state[(inputs->kept + index) * inputs->channels + channel] : 0;
}

// Stores the last inputs, oldest first. In place this is safe, since each moves towards the front.
static void keep_inputs(const struct inputs *inputs, int count, int first, int end, float *out)
{
    for (int i = 0; i < inputs->kept; i++)
        for (int channel = first; channel < end; channel++)
            out[i * inputs->channels + channel] = input_of(inputs, count - inputs->kept + i, channel);
}

static void conv_channels(const struct conv_args *args, const struct batch_sequence *sequence, int first, int end)
{
    const struct kv_state *layout = &args->state.layout;
    const uint8_t *before = state_before(&args->state, args->batch, sequence);
    size_t at = (size_t)sequence->first * (size_t)layout->channels;
    struct inputs inputs = { args->x + at, (const float *)(const void *)before, layout->inputs, layout->channels };
    for (int row = 0; row < sequence->count; row++)
        for (int channel = first; channel < end; channel++) {
            float sum = args->bias ? args->bias[channel] : 0;
            for (int i = 0; i <= layout->inputs; i++)
                sum += args->kernel[i * layout->channels + channel]
                    * input_of(&inputs, row - layout->inputs + i, channel);
            args->out[at + (size_t)row * (size_t)layout->channels + (size_t)channel] = sum / (1 + expf(-sum));
        }
    keep_inputs(&inputs, sequence->count, first, end, state_inputs(state_after(&args->state, args->batch, sequence)));
}

void conv_ref(const void *arguments, int chunk, int chunks)
{
    const struct conv_args *args = arguments;
    int first, end;
    kernel_range(args->state.layout.channels, chunk, chunks, &first, &end);
    for (int i = 0; i < args->batch->sequences; i++)
        conv_channels(args, &args->batch->sequence[i], first, end);
}

// ---- scan ----

float *scan_begin(const struct state_place *place, const struct batch *batch, const struct batch_sequence *sequence,
                  int head)
{
    size_t values = (size_t)place->layout.keys * (size_t)place->layout.values, at = (size_t)head * values;
    const uint8_t *before = state_before(place, batch, sequence);
    uint8_t *after = state_after(place, batch, sequence);
    float *matrix = state_matrix(place, after) + at;
    if (!before)
        return memset(matrix, 0, values * sizeof *matrix);
    if (before != after)
        memcpy(matrix, (const float *)(const void *)(before + place->layout.matrix_offset) + at,
               values * sizeof *matrix);
    return matrix;
}

struct scan_step scan_step_of(const struct ssm_scan_args *args, int row, int head)
{
    const struct kv_state *layout = &args->state.layout;
    size_t inner = (size_t)layout->heads * (size_t)layout->values, keys = (size_t)layout->keys;
    size_t groups = (size_t)args->groups, group = (size_t)head * groups / (size_t)layout->heads;
    const float *mixed = args->mixed + (size_t)row * (inner + 2 * groups * keys);
    float dt = args->dt[(size_t)row * (size_t)layout->heads + (size_t)head] + args->dt_bias[head];
    dt = dt > SCAN_SOFTPLUS_LINEAR ? dt : log1pf(expf(dt));
    dt = fminf(fmaxf(dt, args->dt_min), args->dt_max);
    return (struct scan_step){ .x = mixed + (size_t)head * (size_t)layout->values,
                               .b = mixed + inner + group * keys,
                               .c = mixed + inner + (groups + group) * keys,
                               .out = args->out + (size_t)row * inner + (size_t)head * (size_t)layout->values,
                               .dt = dt,
                               .decay = expf(args->a[head] * dt),
                               .d = args->d[head] };
}

static void scan_head(const struct ssm_scan_args *args, const struct batch_sequence *sequence, int head)
{
    const int keys = args->state.layout.keys, values = args->state.layout.values;
    float *matrix = scan_begin(&args->state, args->batch, sequence, head);
    for (int row = sequence->first; row < sequence->first + sequence->count; row++) {
        struct scan_step step = scan_step_of(args, row, head);
        for (int value = 0; value < values; value++) {
            float x = step.x[value], moved = step.dt * x, sum = 0;
            for (int key = 0; key < keys; key++) {
                float *s = &matrix[key * values + value];
                *s = *s * step.decay + step.b[key] * moved;
                sum += step.c[key] * *s;
            }
            step.out[value] = sum + step.d * x;
        }
    }
}

void ssm_scan_ref(const void *arguments, int chunk, int chunks)
{
    const struct ssm_scan_args *args = arguments;
    int first, end, heads = args->state.layout.heads;
    kernel_range(args->batch->sequences * heads, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++)
        scan_head(args, &args->batch->sequence[i / heads], i % heads);
}
