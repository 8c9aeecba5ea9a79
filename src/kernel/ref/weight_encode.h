// SPDX-License-Identifier: Apache-2.0
// kernel/ref/weight_encode.h: round-to-nearest weight quantisation to published checkpoint formats, with a search for
// the scale of least squared error. In formats with block scales, columns can be weighted by importance. Two 4-bit
// codes share a byte, the even one low.
//
//   format   codes      a scale for       a value is
//   nvfp4    E2M1       16 values: E4M3   code * scale * global
//   mxfp4    E2M1       32 values: E8M0   code * scale
//   fp8      E4M3       a row: f32        code * scale
//   int8     -127..127  a row: f32        code * scale
//
//   (1) values are finite; the caller has checked that with weight_amax
//   (2) no scale is zero, not even for a block of zeros
//   (3) global is a power of two, so that it and its reciprocal, which some layouts store, are the same number
#ifndef KERNEL_REF_WEIGHT_ENCODE_H
#define KERNEL_REF_WEIGHT_ENCODE_H

#include <stddef.h>
#include <stdint.h>

// The largest magnitude; NaN where any of them is NaN or infinite.
float weight_amax(const float *x, size_t count);

// The sum of squares, each times its column's importance; NULL: all are 1.
double weight_energy(const float *x, const float *importance, size_t count);

// NVFP4's global scale for one matrix or several fused ones: the least power of two for which block scales do not
// saturate.
float weight_nvfp4_global(float amax);

// Each encodes one row of whole blocks and returns the sum of its squared errors, unweighted.
struct weight_row {
    const float *x;
    const float *importance; // positive, by column; NULL: all 1. Ignored by formats with a scale per row
    size_t count;
    float global; // of nvfp4
};
typedef double weight_encoder(const struct weight_row *row, void *codes, void *scales);
weight_encoder weight_encode_nvfp4, weight_encode_mxfp4, weight_encode_fp8, weight_encode_int8;

#endif
