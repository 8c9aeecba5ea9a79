// SPDX-License-Identifier: Apache-2.0
// kernel/x86/rotation.h: the rotation of int4_per_token_head, y = H s x, and its transpose s H y, bit-equal to the
// reference (kernel/ref/kv_codec.c).
#ifndef KERNEL_X86_ROTATION_H
#define KERNEL_X86_ROTATION_H

#include "kernel/ref/kv_codec.h"
#include "kernel/x86/vector.h"

static void flip_signs(float *x, int dim)
{
    for (int i = 0; i < dim; i += LANES) {
        uint64_t signs = kv_rotation_signs(i / 64) >> (i % 64);
        vec_store(x + i, flip_lanes(vec_load(x + i), (uint32_t)(signs & ((1u << LANES) - 1))));
    }
}

static void hadamard(float *x, int dim)
{
    for (int i = 0; i < dim; i += LANES)
        vec_store(x + i, mix_lanes(vec_load(x + i)));
    for (int distance = LANES; distance < dim; distance *= 2)
        for (int i = 0; i < dim; i += LANES) {
            if (i & distance)
                continue;
            vec a = vec_load(x + i), b = vec_load(x + i + distance);
            vec_store(x + i, a + b);
            vec_store(x + i + distance, a - b);
        }
}

static inline void rotate(float *x, int dim)
{
    flip_signs(x, dim);
    hadamard(x, dim);
}

static inline void rotate_back(float *x, int dim)
{
    hadamard(x, dim);
    flip_signs(x, dim);
}

#endif
