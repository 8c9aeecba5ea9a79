// SPDX-License-Identifier: Apache-2.0
// kernel/x86/elementwise.c: RMS norm, rope, act_mul (SwiGLU, GeGLU), add, all_reduce and softcap. Work is divided by
// rows, or by values where rows do not matter.
#include <math.h>

#include "kernel/kernel.h"
#include "kernel/x86/table.h"
#include "kernel/x86/vector_math.h"

// Whole vectors first, then what is left: FOR_VECTORS(i, count, width) { ... vec_load_part(x + i, width) ... }
#define FOR_VECTORS(i, count, width) \
    for (int i = 0, width; i < (count) && (width = (count) - i < LANES ? (count) - i : LANES); i += LANES)

// Four independent sums hide the FMA latency.
static float sum_of_squares(const float *x, int count)
{
    enum { SUMS = 4 };
    vec sum[SUMS];
    int i = 0;
    for (int j = 0; j < SUMS; j++)
        sum[j] = vec_set(0);
    for (; i + SUMS * LANES <= count; i += SUMS * LANES)
        for (int j = 0; j < SUMS; j++) {
            vec value = vec_load(x + i + j * LANES);
            sum[j] = vec_fma(value, value, sum[j]);
        }
    for (; i < count; i += LANES) {
        vec value = load_lanes(x + i, count - i < LANES ? count - i : LANES);
        sum[0] = vec_fma(value, value, sum[0]);
    }
    return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void ISA_NAME(norm)(const void *arguments, int chunk, int chunks)
{
    const struct norm_args *args = arguments;
    int first, end, count = args->width;
    kernel_range(*args->rows * args->groups, chunk, chunks, &first, &end);
    for (int group = first; group < end; group++) {
        size_t at = (size_t)group * (size_t)count + (size_t)(group / args->groups) * (size_t)args->gap;
        const float *x = args->x + at;
        float *out = args->out + at;
        const float *weight = args->weight + (args->own_weights ? group % args->groups * count : 0);
        vec factor = vec_set(1 / sqrtf(sum_of_squares(x, count) / (float)count + args->epsilon));
        FOR_VECTORS(i, count, width)
        store_lanes(out + i, load_lanes(x + i, width) * factor * load_lanes(weight + i, width), width);
    }
}

// ---- rope ----

struct angles {
    float cosine[HEAD_DIM_MAX / 2 + LANES], sine[HEAD_DIM_MAX / 2 + LANES];
};

static void find_angles(const struct rope_args *args, int position, struct angles *out)
{
    FOR_VECTORS(i, args->rotated / 2, width)
    {
        vec sine, cosine, magnitude = vec_set(args->magnitude);
        vec_sin_cos(vec_set((float)position) * load_lanes(args->frequencies + i, width), &sine, &cosine);
        vec_store(out->cosine + i, cosine * magnitude);
        vec_store(out->sine + i, sine * magnitude);
    }
}

// Deinterleaves `count` values, at most 2 LANES.
ALWAYS_INLINE void load_neighbours(const float *x, int count, vec *even, vec *odd)
{
    vec low = load_lanes(x, count < LANES ? count : LANES);
    vec high = count > LANES ? load_lanes(x + LANES, count - LANES) : vec_set(0);
    vec_split(low, high, even, odd);
}

static void rotate_head(const struct rope_args *args, float *x, const struct angles *angles)
{
    int pairs = args->rotated / 2;
    float rotated_x[HEAD_DIM_MAX + LANES];
    FOR_VECTORS(i, pairs, width)
    {
        vec a, b, cosine = vec_load(angles->cosine + i), sine = vec_load(angles->sine + i);
        if (args->interleaved) {
            load_neighbours(x + 2 * i, 2 * width, &a, &b);
        } else {
            a = load_lanes(x + i, width);
            b = load_lanes(x + i + pairs, width);
        }
        store_lanes(rotated_x + i, a * cosine - b * sine, width);
        store_lanes(rotated_x + i + pairs, b * cosine + a * sine, width);
    }
    memcpy(x, rotated_x, (size_t)args->rotated * sizeof *x);
}

void ISA_NAME(rope)(const void *arguments, int chunk, int chunks)
{
    const struct rope_args *args = arguments;
    int heads = args->heads + args->kv_heads, first, end, known = -1;
    struct angles angles;
    kernel_range(args->batch->tokens * heads, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++) {
        int row = i / heads, head = i % heads;
        if (row != known)
            find_angles(args, args->batch->positions[row], &angles);
        known = row;
        float *x = head < args->heads
            ? args->q + ((size_t)row * (size_t)args->heads + (size_t)head) * (size_t)args->head_dim
            : args->k + ((size_t)row * (size_t)args->kv_heads + (size_t)(head - args->heads)) * (size_t)args->head_dim;
        rotate_head(args, x + args->first, &angles);
    }
}

// ---- values ----

// Activations are x times a sigmoid where possible: GELU (tanh) too, since (1 + tanh u) / 2 = 1 / (1 + e^-2u).
ALWAYS_INLINE vec activate(enum activation act, vec x)
{
    if (act == ACT_SILU)
        return x * vec_sigmoid(x);
    if (act == ACT_SIGMOID)
        return vec_sigmoid(x);
    if (act == ACT_CLAMPED) {
        x = vec_min(x, vec_set(ACT_CLAMPED_LIMIT));
        return x * vec_sigmoid(vec_set(ACT_CLAMPED_SLOPE) * x);
    }
    if (act == ACT_RELU)
        return vec_max(x, vec_set(0));
    vec u = vec_set(0.7978845608f) * vec_fma(vec_set(0.044715f) * x * x, x, x);
    return x * vec_sigmoid(u + u);
}

// The factor of an activated gate: up, or gpt-oss's clamped up + 1.
ALWAYS_INLINE vec factor_of(enum activation act, vec up)
{
    if (act == ACT_CLAMPED)
        return vec_min(vec_max(up, vec_set(-ACT_CLAMPED_LIMIT)), vec_set(ACT_CLAMPED_LIMIT)) + vec_set(1);
    return up;
}

ALWAYS_INLINE void act_mul_as(const struct act_mul_args *args, enum activation act, int first, int end)
{
    const float *gate = args->gate + first, *up = args->up + first;
    float *out = args->out + first;
    FOR_VECTORS(i, end - first, width)
    store_lanes(out + i, activate(act, load_lanes(gate + i, width)) * factor_of(act, load_lanes(up + i, width)), width);
}

// One gate per row.
static void act_mul_rows(const struct act_mul_args *args, int first, int end)
{
    for (int row = first; row < end; row++) {
        const float *up = args->up + (size_t)row * (size_t)args->width;
        float *out = args->out + (size_t)row * (size_t)args->width;
        vec gate = vec_sigmoid(vec_set(args->gate[row]));
        FOR_VECTORS(i, args->width, width)
        store_lanes(out + i, gate * load_lanes(up + i, width), width);
    }
}

void ISA_NAME(act_mul)(const void *arguments, int chunk, int chunks)
{
    const struct act_mul_args *args = arguments;
    int first, end;
    kernel_range(args->gate_per_row ? *args->rows : *args->rows * args->width, chunk, chunks, &first, &end);
    if (args->gate_per_row)
        act_mul_rows(args, first, end);
    else if (args->act == ACT_SILU)
        act_mul_as(args, ACT_SILU, first, end);
    else if (args->act == ACT_SIGMOID)
        act_mul_as(args, ACT_SIGMOID, first, end);
    else if (args->act == ACT_CLAMPED)
        act_mul_as(args, ACT_CLAMPED, first, end);
    else if (args->act == ACT_RELU)
        act_mul_as(args, ACT_RELU, first, end);
    else
        act_mul_as(args, ACT_GELU_TANH, first, end);
}

void ISA_NAME(add)(const void *arguments, int chunk, int chunks)
{
    const struct add_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    FOR_VECTORS(i, end - first, width)
    {
        float *x = args->x + first + i;
        store_lanes(x, load_lanes(x, width) + load_lanes(args->y + first + i, width), width);
    }
}

void ISA_NAME(all_reduce)(const void *arguments, int chunk, int chunks)
{
    const struct all_reduce_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    FOR_VECTORS(i, end - first, width)
    {
        const float *own = args->parts + first + i;
        float *out = args->out + first + i;
        vec sum = load_lanes(own, width);
        for (int rank = 1; rank < args->ranks; rank++)
            sum = sum + load_lanes(own + (size_t)rank * args->stride, width);
        if (args->adds)
            sum = load_lanes(out, width) + sum;
        store_lanes(out, sum, width);
    }
}

void ISA_NAME(softcap)(const void *arguments, int chunk, int chunks)
{
    const struct softcap_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    vec cap = vec_set(args->cap);
    FOR_VECTORS(i, end - first, width)
    {
        float *x = args->x + first + i;
        store_lanes(x, cap * vec_tanh(load_lanes(x, width) / cap), width);
    }
}
