// SPDX-License-Identifier: Apache-2.0
// kernel/ref/gptq.h: GPTQ rounding (Frantar et al., 2022) to the formats of weight_encode.h: it minimises the error of
// the layer's output instead of the weights' own. Columns are rounded in order, and each error is distributed over the
// later columns, weighted by the Hessian's Cholesky factor (kernel/ref/hessian.h). Of a block's candidate scales the
// one with the least output error is taken.
//   (1) with the factor R, a row w and its rounded w', rounding minimises |(w - w') R|^2 greedily, column by column:
//       column j is rounded after adding (w - w')_i R_ij / R_jj, summed over earlier i
//   (2) a row's codes do not depend on the other rows of the tile
#ifndef KERNEL_REF_GPTQ_H
#define KERNEL_REF_GPTQ_H

#include <stddef.h>
#include <stdint.h>

#include "kernel/ref/tile.h"

enum { GPTQ_TILE_ROWS = TILE_LANES };

struct gptq_tile {
    const float *x; // (rows, count): finite numbers, count whole blocks
    int rows;       // at most GPTQ_TILE_ROWS
    size_t count;
    float global;        // NVFP4's global scale
    const float *factor; // the Hessian's Cholesky factor: (hessian_size(count), hessian_size(count))
    float *scratch;      // gptq_scratch(count) values
    double *error;       // (rows): out: each row's sum of squared errors of weights, unweighted
};

size_t gptq_scratch(size_t count);

// Codes and scales of the rows, one row after the other.
typedef void gptq_encoder(const struct gptq_tile *tile, uint8_t *codes, void *scales);
gptq_encoder gptq_nvfp4, gptq_mxfp4, gptq_fp8, gptq_int8;

#endif
