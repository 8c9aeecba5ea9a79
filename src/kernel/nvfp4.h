// SPDX-License-Identifier: Apache-2.0
// kernel/nvfp4.h: dynamic NVFP4 quantisation of activations (W4A4), the definition, for C and CUDA. Each run of 16
// activations is rounded to E2M1, with the E4M3 scale that maps the largest of them to 6. Beyond 6 * 448 they saturate;
// a NaN makes the scale NaN. The layout is cuBLASLt's:
//   (1) codes: two in a byte, the first in its low bits, row after row
//   (2) scales: tiles of 128 rows by 4 runs, 512 bytes each, a row of tiles after the other; see nvfp4_scale_at
#ifndef KERNEL_NVFP4_H
#define KERNEL_NVFP4_H

#include <stddef.h>

#include "kernel/minifloat.h"

enum { NVFP4_RUN = 16, NVFP4_TILE_ROWS = 128, NVFP4_TILE_RUNS = 4, NVFP4_TILE_BYTES = 512 };

// Sixteen values become eight bytes; returns their scale.
MINIFLOAT uint8_t nvfp4_round(const float x[NVFP4_RUN], uint8_t codes[NVFP4_RUN / 2])
{
    int32_t largest = 0; // compared as integers, so that NaN is the largest of all
    for (int i = 0; i < NVFP4_RUN; i++) {
        int32_t magnitude = f32_bits(x[i]) & F32_MAGNITUDE;
        largest = magnitude > largest ? magnitude : largest;
    }
    uint8_t scale = f32_to_e4m3(f32_from_bits(largest) / 6);
    float step = e4m3_to_f32(scale), inverse = step > 0 ? 1 / step : 0;
    for (int i = 0; i < NVFP4_RUN / 2; i++)
        codes[i] = (uint8_t)(f32_to_e2m1(x[2 * i] * inverse) | f32_to_e2m1(x[2 * i + 1] * inverse) << 4);
    return scale;
}

MINIFLOAT int nvfp4_tiles(int count, int each) { return (count + each - 1) / each; }

// The scales' size for `rows` rows of `runs` runs.
MINIFLOAT size_t nvfp4_scales_bytes(int rows, int runs)
{
    return (size_t)nvfp4_tiles(rows, NVFP4_TILE_ROWS) * (size_t)nvfp4_tiles(runs, NVFP4_TILE_RUNS) * NVFP4_TILE_BYTES;
}

MINIFLOAT size_t nvfp4_scale_at(int row, int run, int runs)
{
    size_t tile = (size_t)(row / NVFP4_TILE_ROWS) * (size_t)nvfp4_tiles(runs, NVFP4_TILE_RUNS)
        + (size_t)(run / NVFP4_TILE_RUNS);
    return tile * NVFP4_TILE_BYTES
        + (size_t)(row % 32 * 16 + row % NVFP4_TILE_ROWS / 32 * NVFP4_TILE_RUNS + run % NVFP4_TILE_RUNS);
}

#endif
