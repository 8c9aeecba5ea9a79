// SPDX-License-Identifier: Apache-2.0
// model/weight_layout.h: the layouts of quantised matrices (N rows, K columns) in published checkpoints, as a table of
// tensor names, types and shapes. Float scales may be F32, F16 or BF16.
#ifndef MODEL_WEIGHT_LAYOUT_H
#define MODEL_WEIGHT_LAYOUT_H

#include "model/tensor_source.h"

enum layout_part_name {
    LAYOUT_CODES,
    LAYOUT_SCALES,
    LAYOUT_ZEROS,
    LAYOUT_ORDER,
    LAYOUT_EXTENTS,
    LAYOUT_OVERALL,
    LAYOUT_PARTS
};

enum layout_extent {
    LAYOUT_ONE, // dimensions of 1 are ignored: () matches (1), and (N) matches (N, 1)
    LAYOUT_N,
    LAYOUT_K,
    LAYOUT_N_WORDS,
    LAYOUT_K_WORDS, // the number of words that hold N or K codes
    LAYOUT_N_SCALES,
    LAYOUT_K_SCALES, // the number of scales along N or K
    LAYOUT_TWO,
};

struct layout_part {
    const char *suffix; // NULL: the layout has no such tensor
    uint64_t dtypes;    // a set of dtypes
    enum layout_extent shape[2];
};

// A quantisation scheme: a layout with its parameters, as a checkpoint declares it for some modules.
struct scheme {
    const struct weight_layout *layout; // NULL: plain weights
    const char *word;                   // "NVFP4 (modelopt)"
    int bits;                           // bits of integer codes
    int group, rows_each;               // the scale's block: values of a row, and rows; 0: all
    bool zeros;                         // asymmetric
    bool ordered;                       // act-order (g_idx): groups of columns in another order
    int zero_bias;                      // added to stored zero points
};

struct weight_layout {
    struct layout_part part[LAYOUT_PARTS];
    int multiple; // K must be a multiple of this
    bool divides; // the global scale is a divisor
    // The format that kernels read it in, for rows of `cols`; with stored->scales there if the file's headers are.
    enum dtype (*resolve)(const struct scheme *scheme, int64_t cols, struct tensor_source *source);
};

// tensor_source_fp4.c, tensor_source_fp8.c, tensor_source_int.c
extern const struct weight_layout weight_layout_nvfp4_modelopt, weight_layout_nvfp4_compressed, weight_layout_mxfp4;
extern const struct weight_layout weight_layout_fp8, weight_layout_fp8_inverse, weight_layout_mxfp8;
extern const struct weight_layout weight_layout_int8, weight_layout_packed, weight_layout_gptq, weight_layout_awq;

#define LAYOUT_FLOATS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))
#define LAYOUT_E8M0 (DTYPE_BIT(U8) | DTYPE_BIT(FP8_E8M0))

#endif
