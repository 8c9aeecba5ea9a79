// SPDX-License-Identifier: Apache-2.0
// kernel/x86/transform.c: centring and Hadamard rotation of keys before quantisation, and of queries to match;
// bit-equal to the reference (kernel/ref/transform.c).
#include <math.h>

#include "kernel/kernel.h"
#include "kernel/x86/table.h"
#include "kernel/x86/rotation.h"

// Queries have no centre (NULL).
static void transform_head(const struct transform_args *args, float *x, const float *centre)
{
    for (int i = 0; i < args->head_dim && centre; i += LANES)
        vec_store(x + i, vec_load(x + i) - vec_load(centre + i));
    if (!args->block)
        return;
    vec factor = vec_set(1 / sqrtf((float)args->block));
    for (int i = 0; i < args->head_dim; i += args->block)
        hadamard(x + i, args->block);
    for (int i = 0; i < args->head_dim; i += LANES)
        vec_store(x + i, vec_load(x + i) * factor);
}

void ISA_NAME(transform)(const void *arguments, int chunk, int chunks)
{
    const struct transform_args *args = arguments;
    int heads = args->heads + args->kv_heads, first, end;
    kernel_range(*args->rows * heads, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++) {
        size_t row = (size_t)(i / heads), dim = (size_t)args->head_dim;
        int head = i % heads, key = head - args->heads;
        if (key < 0)
            transform_head(args, args->q + (row * (size_t)args->heads + (size_t)head) * dim, NULL);
        else
            transform_head(args, args->k + (row * (size_t)args->kv_heads + (size_t)key) * dim,
                           args->centre ? args->centre + (size_t)key * dim : NULL);
    }
}
