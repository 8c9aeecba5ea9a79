// SPDX-License-Identifier: Apache-2.0
// model/weight_layout.h: how published checkpoints lay out a quantised matrix of N rows and K columns: a form is a row
// of names, types and shapes, and what becomes of it. Scales may be F32, F16 or BF16 wherever they are floats.
#ifndef MODEL_WEIGHT_LAYOUT_H
#define MODEL_WEIGHT_LAYOUT_H

#include "model/tensor_source.h"

enum layout_part_name { LAYOUT_CODES, LAYOUT_SCALES, LAYOUT_ZEROS, LAYOUT_ORDER, LAYOUT_EXTENTS, LAYOUT_OVERALL, LAYOUT_PARTS };

enum layout_extent {
    LAYOUT_ONE, // dimensions of one are not told apart: () is (1), and (N) is (N, 1)
    LAYOUT_N,
    LAYOUT_K,
    LAYOUT_N_WORDS,
    LAYOUT_K_WORDS, // as many words of the codes' type as hold that many codes
    LAYOUT_N_SCALES,
    LAYOUT_K_SCALES, // rows and groups that have a scale of their own
    LAYOUT_TWO,
};

struct layout_part {
    const char *suffix; // NULL: the form has none
    uint64_t dtypes;    // any of these
    enum layout_extent shape[2];
};

// A form with its numbers, as a checkpoint declares it for some of its modules.
struct scheme {
    const struct weight_layout *layout; // NULL: plain weights
    const char *word;        // "NVFP4 (modelopt)"
    int bits;                // of integers
    int group, rows_each;    // values of a row, and rows, that share a scale; 0: all
    bool zeros;              // asymmetric
    bool ordered;            // groups are of columns in an order of their own
    int zero_bias;           // what stored zero points lack
};

struct weight_layout {
    struct layout_part part[LAYOUT_PARTS];
    int multiple; // of K
    bool divides; // by the overall scale
    // The format that kernels read it in, for rows of `cols`; with stored->scales there if the file's headers are.
    enum dtype (*resolve)(const struct scheme *scheme, int64_t cols, struct tensor_source *source);
};

extern const struct weight_layout weight_layout_nvfp4_modelopt, weight_layout_nvfp4_compressed, weight_layout_mxfp4; // stored_fp4.c
extern const struct weight_layout weight_layout_fp8, weight_layout_fp8_inverse, weight_layout_mxfp8;                 // stored_fp8.c
extern const struct weight_layout weight_layout_int8, weight_layout_packed, weight_layout_gptq, weight_layout_awq;            // stored_int.c

#define LAYOUT_FLOATS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))
#define LAYOUT_E8M0 (DTYPE_BIT(U8) | DTYPE_BIT(FP8_E8M0))

#endif
