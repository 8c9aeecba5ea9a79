// SPDX-License-Identifier: Apache-2.0
// kernel/x86/ssm.c: the causal convolution and the selective scan of Mamba 2, recurrent form. Lanes are channels of the
// convolution and values of the scan, which are independent. The scan uses no FMA, so it is bit-equal to the reference.
#include "kernel/kernel.h"
#include "kernel/ref/ssm.h"
#include "kernel/state.h"
#include "kernel/x86/table.h"
#include "kernel/x86/vector_math.h"

// ---- conv ----

// A sequence's inputs to the convolution for some channels: index >= 0 is a row of this step, a negative index is in
// the state.
struct conv_inputs {
    const float *x, *state; // state is NULL at the sequence's start
    int kept, channels;
};

ALWAYS_INLINE vec conv_input(const struct conv_inputs *inputs, int row, int lanes)
{
    if (row >= 0)
        return load_lanes(inputs->x + (size_t)row * (size_t)inputs->channels, lanes);
    return inputs->state ? load_lanes(inputs->state + (inputs->kept + row) * inputs->channels, lanes) : vec_set(0);
}

// One vector of channels. In-place update of the kept inputs is safe, since each moves towards the front.
static void conv_lanes(const struct conv_args *args, const struct batch_sequence *sequence, int channel, int lanes)
{
    const int kept = args->state.layout.inputs, channels = args->state.layout.channels;
    const float *before = (const float *)(const void *)state_before(&args->state, args->batch, sequence);
    float *after = state_inputs(state_after(&args->state, args->batch, sequence)) + channel;
    size_t at = (size_t)sequence->first * (size_t)channels + (size_t)channel;
    struct conv_inputs inputs = { args->x + at, before ? before + channel : NULL, kept, channels };
    for (int row = 0; row < sequence->count; row++) {
        vec sum = args->bias ? load_lanes(args->bias + channel, lanes) : vec_set(0);
        for (int i = 0; i <= kept; i++)
            sum += load_lanes(args->kernel + i * channels + channel, lanes)
                * conv_input(&inputs, row - kept + i, lanes);
        store_lanes(args->out + at + (size_t)row * (size_t)channels, sum * vec_sigmoid(sum), lanes);
    }
    for (int i = 0; i < kept; i++)
        store_lanes(after + i * channels, conv_input(&inputs, sequence->count - kept + i, lanes), lanes);
}

void ISA_NAME(conv)(const void *arguments, int chunk, int chunks)
{
    const struct conv_args *args = arguments;
    int channels = args->state.layout.channels, first, end;
    kernel_range((channels + LANES - 1) / LANES, chunk, chunks, &first, &end);
    for (int i = 0; i < args->batch->sequences; i++)
        for (int at = first * LANES; at < end * LANES && at < channels; at += LANES)
            conv_lanes(args, &args->batch->sequence[i], at, channels - at < LANES ? channels - at : LANES);
}

// ---- scan ----

enum { SCAN_VECTORS = 4 }; // vectors of values per pass over the keys

ALWAYS_INLINE void scan_values(const struct scan_step *step, float *matrix, int keys, int values, int first, int count)
{
    vec x[SCAN_VECTORS], moved[SCAN_VECTORS], sum[SCAN_VECTORS], decay = vec_set(step->decay);
    for (int i = 0; i < count; i++) {
        x[i] = vec_load(step->x + first + i * LANES);
        moved[i] = vec_set(step->dt) * x[i];
        sum[i] = vec_set(0);
    }
    for (int key = 0; key < keys; key++)
        for (int i = 0; i < count; i++) {
            float *at = matrix + (size_t)key * (size_t)values + first + i * LANES;
            vec s = vec_load(at) * decay + vec_set(step->b[key]) * moved[i];
            vec_store(at, s);
            sum[i] += vec_set(step->c[key]) * s;
        }
    for (int i = 0; i < count; i++)
        vec_store(step->out + first + i * LANES, sum[i] + vec_set(step->d) * x[i]);
}

// The tail that fills no vector.
static void scan_rest(const struct scan_step *step, float *matrix, int keys, int values, int first)
{
    int lanes = values - first;
    vec x = vec_load_part(step->x + first, lanes), moved = vec_set(step->dt) * x, sum = vec_set(0);
    for (int key = 0; key < keys; key++) {
        float *at = matrix + (size_t)key * (size_t)values + first;
        vec s = vec_load_part(at, lanes) * vec_set(step->decay) + vec_set(step->b[key]) * moved;
        vec_store_part(at, s, lanes);
        sum += vec_set(step->c[key]) * s;
    }
    vec_store_part(step->out + first, sum + vec_set(step->d) * x, lanes);
}

static void scan_head(const struct ssm_scan_args *args, const struct batch_sequence *sequence, int head)
{
    const int keys = args->state.layout.keys, values = args->state.layout.values, step_values = SCAN_VECTORS * LANES;
    float *matrix = scan_begin(&args->state, args->batch, sequence, head);
    for (int row = sequence->first; row < sequence->first + sequence->count; row++) {
        struct scan_step step = scan_step_of(args, row, head);
        int first = 0;
        for (; first + step_values <= values; first += step_values)
            scan_values(&step, matrix, keys, values, first, SCAN_VECTORS);
        for (; first + LANES <= values; first += LANES)
            scan_values(&step, matrix, keys, values, first, 1);
        if (first < values)
            scan_rest(&step, matrix, keys, values, first);
    }
}

void ISA_NAME(ssm_scan)(const void *arguments, int chunk, int chunks)
{
    const struct ssm_scan_args *args = arguments;
    int first, end, heads = args->state.layout.heads;
    kernel_range(args->batch->sequences * heads, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++)
        scan_head(args, &args->batch->sequence[i / heads], i % heads);
}
