// SPDX-License-Identifier: Apache-2.0
// kernel/ref/weight_encode.h: numbers to the codes and scales that published checkpoints hold. Of the scales that a
// format can say, the one with the least square error is taken; where blocks have scales, errors may count more in some
// columns than in others. Two four-bit codes share a byte, the even one low.
//
//   format   codes      a scale for       a value is
//   nvfp4    E2M1       16 values: E4M3   code * scale * global
//   mxfp4    E2M1       32 values: E8M0   code * scale
//   fp8      E4M3       a row: f32        code * scale
//   int8     -127..127  a row: f32        code * scale
//
//   (1) numbers are finite; the caller has made sure by weight_amax
//   (2) no scale is zero, not even that of zeros
//   (3) global is a power of two, so that it and its reciprocal, which some layouts store, are the same number
#ifndef KERNEL_REF_WEIGHT_ENCODE_H
#define KERNEL_REF_WEIGHT_ENCODE_H

#include <stddef.h>
#include <stdint.h>

// The largest magnitude; NaN where any of them is NaN or infinite.
float weight_amax(const float *x, size_t count);

// The sum of squares, each times its column's importance; NULL: all are 1.
double weight_energy(const float *x, const float *importance, size_t count);

// For a matrix, or several that share it: the least power of two with which the largest block scale suffices.
float weight_nvfp4_global(float amax);

// Each encodes one row of whole blocks and gives the sum of its squared errors, all of which count the same there.
struct weight_row {
    const float *x;
    const float *importance; // positive, by column; NULL: all are 1. Rows with a single scale do without
    size_t count;
    float global; // of nvfp4
};
typedef double weight_encoder(const struct weight_row *row, void *codes, void *scales);
weight_encoder weight_encode_nvfp4, weight_encode_mxfp4, weight_encode_fp8, weight_encode_int8;

#endif
