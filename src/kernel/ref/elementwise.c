// SPDX-License-Identifier: Apache-2.0
// kernel/ref/elementwise.c: embedding, RMS norm, rotary embedding, act_mul (SwiGLU, GeGLU), add, pick, softcap, copy,
// all_reduce and all_gather; the reference. Work is divided by rows, or by values where rows do not matter.
#include <math.h>
#include <string.h>

#include "kernel/ref/dot.h"
#include "kernel/ref/table.h"
#include "kernel/ref/weight.h"

void embed_ref(const void *arguments, int chunk, int chunks)
{
    const struct embed_args *args = arguments;
    int first, end, width = args->table.cols;
    size_t row_bytes = dtype_bytes(args->table.dtype, (size_t)width);
    float scale = args->scale * args->table.scale;
    kernel_range(args->batch->tokens, chunk, chunks, &first, &end);
    for (int row = first; row < end; row++) {
        float *out = args->out + (size_t)row * (size_t)width;
        int at = args->batch->ids[row] - args->first;
        if (at < 0 || at >= args->table.rows) {
            memset(out, 0, (size_t)width * sizeof *out);
            continue;
        }
        weight_decode(args->table.dtype, (const char *)args->table.data + (size_t)at * row_bytes, (size_t)width, out);
        for (int i = 0; i < width; i++)
            out[i] *= scale;
    }
}

void norm_ref(const void *arguments, int chunk, int chunks)
{
    const struct norm_args *args = arguments;
    int first, end, width = args->width;
    kernel_range(*args->rows * args->groups, chunk, chunks, &first, &end);
    for (int group = first; group < end; group++) {
        size_t at = (size_t)group * (size_t)width + (size_t)(group / args->groups) * (size_t)args->gap;
        const float *x = args->x + at;
        float *out = args->out + at;
        const float *weight = args->weight + (args->own_weights ? group % args->groups * width : 0);
        float factor = 1 / sqrtf(dot(x, x, width) / (float)width + args->epsilon);
        for (int i = 0; i < width; i++)
            out[i] = x[i] * factor * weight[i];
    }
}

// Applies the rotary embedding (RoPE) to one head's vector.
static void rope_head(const struct rope_args *args, float *x, const float *cosine, const float *sine)
{
    int pairs = args->rotated / 2;
    float rotated_x[HEAD_DIM_MAX];
    x += args->first;
    for (int i = 0; i < pairs; i++) {
        float a = x[args->interleaved ? 2 * i : i];
        float b = x[args->interleaved ? 2 * i + 1 : i + pairs];
        rotated_x[i] = a * cosine[i] - b * sine[i];
        rotated_x[i + pairs] = b * cosine[i] + a * sine[i];
    }
    memcpy(x, rotated_x, (size_t)args->rotated * sizeof *x);
}

void rope_ref(const void *arguments, int chunk, int chunks)
{
    const struct rope_args *args = arguments;
    int first, end;
    kernel_range(args->batch->tokens, chunk, chunks, &first, &end);
    for (int row = first; row < end; row++) {
        float cosine[HEAD_DIM_MAX / 2], sine[HEAD_DIM_MAX / 2];
        for (int i = 0; i < args->rotated / 2; i++) {
            float angle = (float)args->batch->positions[row] * args->frequencies[i];
            cosine[i] = cosf(angle) * args->magnitude;
            sine[i] = sinf(angle) * args->magnitude;
        }
        for (int head = 0; head < args->heads; head++)
            rope_head(args, args->q + ((size_t)row * (size_t)args->heads + (size_t)head) * (size_t)args->head_dim,
                      cosine, sine);
        for (int head = 0; head < args->kv_heads; head++)
            rope_head(args, args->k + ((size_t)row * (size_t)args->kv_heads + (size_t)head) * (size_t)args->head_dim,
                      cosine, sine);
    }
}

static float activate(enum activation act, float x)
{
    switch (act) {
    case ACT_SILU: return x / (1 + expf(-x));
    case ACT_GELU_TANH: return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case ACT_CLAMPED: x = fminf(x, ACT_CLAMPED_LIMIT); return x / (1 + expf(-ACT_CLAMPED_SLOPE * x));
    case ACT_RELU: return fmaxf(x, 0);
    case ACT_SIGMOID: return 1 / (1 + expf(-x));
    }
    return x;
}

// The factor of an activated gate: up, or gpt-oss's clamped up + 1.
static float factor_of(enum activation act, float up)
{
    return act == ACT_CLAMPED ? fminf(fmaxf(up, -ACT_CLAMPED_LIMIT), ACT_CLAMPED_LIMIT) + 1 : up;
}

void act_mul_ref(const void *arguments, int chunk, int chunks)
{
    const struct act_mul_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++)
        args->out[i] = activate(args->act, args->gate[args->gate_per_row ? i / args->width : i])
            * factor_of(args->act, args->up[i]);
}

void add_ref(const void *arguments, int chunk, int chunks)
{
    const struct add_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++)
        args->x[i] += args->y[i];
}

void pick_ref(const void *arguments, int chunk, int chunks)
{
    const struct pick_args *args = arguments;
    int first, end;
    size_t width = (size_t)args->width;
    kernel_range(args->batch->outputs, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++)
        memcpy(args->out + (size_t)i * width, args->x + (size_t)args->batch->output_rows[i] * width,
               width * sizeof(float));
}

void copy_ref(const void *arguments, int chunk, int chunks)
{
    const struct copy_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    memcpy(args->out + first, args->x + first, (size_t)(end - first) * sizeof *args->out);
}

void all_reduce_ref(const void *arguments, int chunk, int chunks)
{
    const struct all_reduce_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++) {
        float sum = args->parts[i];
        for (int rank = 1; rank < args->ranks; rank++)
            sum += args->parts[(size_t)rank * args->stride + (size_t)i];
        args->out[i] = args->adds ? args->out[i] + sum : sum;
    }
}

void all_gather_ref(const void *arguments, int chunk, int chunks)
{
    const struct all_gather_args *args = arguments;
    int first, end, units = (args->width + ALL_GATHER_UNIT - 1) / ALL_GATHER_UNIT;
    kernel_range(*args->rows, chunk, chunks, &first, &end);
    for (int rank = 0; rank < args->ranks; rank++) {
        int column, column_end;
        kernel_range(units, rank, args->ranks, &column, &column_end);
        column *= ALL_GATHER_UNIT;
        column_end = column_end * ALL_GATHER_UNIT < args->width ? column_end * ALL_GATHER_UNIT : args->width;
        size_t columns = (size_t)(column_end - column);
        const float *own = args->parts + (size_t)rank * args->stride;
        for (int row = first; row < end; row++)
            memcpy(args->out + (size_t)row * (size_t)args->width + column, own + (size_t)row * columns,
                   columns * sizeof *own);
    }
}

void softcap_ref(const void *arguments, int chunk, int chunks)
{
    const struct softcap_args *args = arguments;
    int first, end;
    kernel_range(*args->rows * args->width, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++)
        args->x[i] = args->cap * tanhf(args->x[i] / args->cap);
}
