// SPDX-License-Identifier: Apache-2.0
// kernel/ref/tile.h: an f32 GEMM micro-kernel for quantisation (GPTQ), where weights are used once and packing does not
// pay. FMA contraction is off and every sum has a fixed order, so all instruction sets give the same bits.
#ifndef KERNEL_REF_TILE_H
#define KERNEL_REF_TILE_H

#include <stddef.h>

// Compiles a function for several instruction sets (function multi-versioning). Sanitizers build one version only: the
// loader calls the ifunc resolver before the sanitizer's runtime is ready.
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ \
    && !defined __SANITIZE_THREAD__
#define FOR_EACH_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_ISA
#endif

// For functions inlined into those, so that they are compiled for each instruction set.
#define INLINE_FOR_EACH_ISA static inline __attribute__((always_inline))

enum { TILE_LANES = 16, TILE_ROWS = 4 };

// sum[r][lane] += a[i * a_step + r * a_row] * b[i * b_step + lane], over i
INLINE_FOR_EACH_ISA void tile_multiply(float sum[TILE_ROWS][TILE_LANES], const float *a, size_t a_step, size_t a_row,
                                       const float *b, size_t b_step, size_t count)
{
    typedef float lanes __attribute__((vector_size(32), aligned(4)));
    enum { WIDTH = sizeof(lanes) / sizeof(float), VECTORS = TILE_LANES / WIDTH };
    lanes own[TILE_ROWS][VECTORS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < VECTORS; v++)
            own[r][v] = *(const lanes *)(const void *)&sum[r][v * WIDTH];
    for (size_t i = 0; i < count; i++, a += a_step, b += b_step)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int v = 0; v < VECTORS; v++)
                own[r][v] += a[(size_t)r * a_row] * *(const lanes *)(const void *)&b[v * WIDTH];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < VECTORS; v++)
            *(lanes *)(void *)&sum[r][v * WIDTH] = own[r][v];
}

#endif
