// SPDX-License-Identifier: Apache-2.0
// kernel/ref/transform.c: key transforms before quantisation: centring, and a Hadamard rotation of keys and queries;
// the reference.
#include <math.h>

#include "kernel/ref/table.h"

// Fast Walsh-Hadamard transform, normalised: butterflies at distance 1, 2, 4 ...
static void rotate(float *x, int block)
{
    float factor = 1 / sqrtf((float)block);
    for (int distance = 1; distance < block; distance *= 2)
        for (int i = 0; i < block; i++)
            if (!(i & distance)) {
                float a = x[i], b = x[i + distance];
                x[i] = a + b;
                x[i + distance] = a - b;
            }
    for (int i = 0; i < block; i++)
        x[i] *= factor;
}

// Queries have no centre (NULL).
static void transform_head(const struct transform_args *args, float *x, const float *centre)
{
    for (int i = 0; i < args->head_dim && centre; i++)
        x[i] -= centre[i];
    for (int i = 0; i < args->head_dim && args->block; i += args->block)
        rotate(x + i, args->block);
}

void transform_ref(const void *arguments, int chunk, int chunks)
{
    const struct transform_args *args = arguments;
    size_t dim = (size_t)args->head_dim;
    int first, end;
    kernel_range(*args->rows, chunk, chunks, &first, &end);
    for (int row = first; row < end; row++) {
        for (int head = 0; head < args->heads; head++)
            transform_head(args, args->q + (size_t)(row * args->heads + head) * dim, NULL);
        for (int head = 0; head < args->kv_heads; head++)
            transform_head(args, args->k + (size_t)(row * args->kv_heads + head) * dim,
                           args->centre ? args->centre + (size_t)head * dim : NULL);
    }
}
