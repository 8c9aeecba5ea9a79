// SPDX-License-Identifier: Apache-2.0
// model/weight_layout.h: how published checkpoints lay out a quantised matrix of N rows and K columns: a form is a row
// of names, types and shapes, and what becomes of it. Scales may be F32, F16 or BF16 wherever they are floats.
#ifndef MODEL_WEIGHT_LAYOUT_H
#define MODEL_WEIGHT_LAYOUT_H

#include "model/tensor_source.h"

enum form_part_name { FORM_CODES, FORM_SCALES, FORM_ZEROS, FORM_ORDER, FORM_EXTENTS, FORM_OVERALL, FORM_PARTS };

enum form_extent {
    FORM_ONE, // dimensions of one are not told apart: () is (1), and (N) is (N, 1)
    FORM_N,
    FORM_K,
    FORM_N_WORDS,
    FORM_K_WORDS, // as many words of the codes' type as hold that many codes
    FORM_N_SCALES,
    FORM_K_SCALES, // rows and groups that have a scale of their own
    FORM_TWO,
};

struct form_part {
    const char *suffix; // NULL: the form has none
    uint64_t dtypes;    // any of these
    enum form_extent shape[2];
};

// A form with its numbers, as a checkpoint declares it for some of its modules.
struct scheme {
    const struct form *form; // NULL: plain weights
    const char *word;        // "NVFP4 (modelopt)"
    int bits;                // of integers
    int group, rows_each;    // values of a row, and rows, that share a scale; 0: all
    bool zeros;              // asymmetric
    bool ordered;            // groups are of columns in an order of their own
    int zero_bias;           // what stored zero points lack
};

struct form {
    struct form_part part[FORM_PARTS];
    int multiple; // of K
    bool divides; // by the overall scale
    // The format that kernels read it in, for rows of `cols`; with stored->scales there if the file's headers are.
    enum dtype (*settle)(const struct scheme *scheme, int64_t cols, struct stored *stored);
};

extern const struct form form_nvfp4_modelopt, form_nvfp4_compressed, form_mxfp4; // stored_fp4.c
extern const struct form form_fp8, form_fp8_inverse, form_mxfp8;                 // stored_fp8.c
extern const struct form form_int8, form_packed, form_gptq, form_awq;            // stored_int.c

#define FORM_FLOATS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))
#define FORM_E8M0 (DTYPE_BIT(U8) | DTYPE_BIT(FP8_E8M0))

#endif
