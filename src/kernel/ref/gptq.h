// SPDX-License-Identifier: Apache-2.0
// kernel/ref/gptq.h: the encoders of weight_encode.h, but for the sake of what the matrix gives rather
// than of the weights: a row's values are rounded from the first column on, and what one loses the later ones make up
// for as far as their inputs go together with its own (kernel/ref/hessian.h). Of the scales of a block the one is taken
// with which that loses least.
//   (1) with the factor R, a row w and what becomes of it w', rounding minimises |(w - w') R|^2 greedily, column by
//       column: to a column's value comes what was lost before, (w - w')_i R_ij / R_jj summed over earlier i
//   (2) a row's codes do not depend on the rows that it is encoded with
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
    float global;        // of nvfp4
    const float *factor; // of the columns' hessian: (hessian_size(count), hessian_size(count))
    float *scratch;      // gptq_scratch(count) values
    double *error;       // (rows): becomes the sum of each row's squared errors, all of which count the same there
};

size_t gptq_scratch(size_t count);

// Codes and scales of the rows, one row after the other.
typedef void gptq_encoder(const struct gptq_tile *tile, uint8_t *codes, void *scales);
gptq_encoder gptq_nvfp4, gptq_mxfp4, gptq_fp8, gptq_int8;

#endif
