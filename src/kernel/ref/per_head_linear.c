// SPDX-License-Identifier: Apache-2.0
// kernel/ref/per_head_linear.c: a batched GEMM with one small matrix per head (MLA's w_uk and w_uv); the
// reference. Work is divided by heads.
#include <assert.h>
#include <string.h>

#include "kernel/ref/dot.h"
#include "kernel/ref/table.h"
#include "kernel/ref/weight.h"

// One row of one head's matrix, for every token.
static void heads_row(const struct per_head_linear_args *args, int head, int row)
{
    float decoded[args->in];
    size_t x_dim = (size_t)(args->in + args->rest), y_dim = (size_t)(args->out + args->rest);
    size_t heads = (size_t)args->heads, number = (size_t)head * (size_t)args->out + (size_t)row;
    size_t row_bytes = dtype_bytes(args->weight.dtype, (size_t)args->in);
    weight_decode(args->weight.dtype, (const char *)args->weight.data + number * row_bytes, (size_t)args->in, decoded);
    for (int token = 0; token < *args->rows; token++) {
        size_t at = (size_t)token * heads + (size_t)head;
        args->y[at * y_dim + (size_t)row] = dot(decoded, args->x + at * x_dim, args->in) * args->weight.scale;
    }
}

static void heads_rest(const struct per_head_linear_args *args, int head)
{
    size_t x_dim = (size_t)(args->in + args->rest), y_dim = (size_t)(args->out + args->rest);
    for (int token = 0; token < *args->rows; token++) {
        size_t at = (size_t)token * (size_t)args->heads + (size_t)head;
        memcpy(args->y + at * y_dim + args->out, args->x + at * x_dim + args->in, (size_t)args->rest * sizeof(float));
    }
}

void per_head_linear_ref(const void *arguments, int chunk, int chunks)
{
    const struct per_head_linear_args *args = arguments;
    int first, end;
    assert(args->in <= LATENT_DIM_MAX);
    kernel_range(args->heads, chunk, chunks, &first, &end);
    for (int head = first; head < end; head++) {
        for (int row = 0; row < args->out; row++)
            heads_row(args, head, row);
        heads_rest(args, head);
    }
}
