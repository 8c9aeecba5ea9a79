// SPDX-License-Identifier: Apache-2.0
// base/dtype.h: the number formats (dtypes), one row each. Parsers, page sizes, kernels, tests and docs expand this
// list. A name from a user or a type number from a file is looked up here once; all other code uses enum dtype.
//
//   word         what users type and read (--kv-cache-dtype, plan, eval)
//   use          W: weights can have it; KV: the KV cache can have it; LATENT: only the cache of MLA latents can
//                (kv/layout.h); NONE: recognised in files, never computed with
//   bits         of one value, scales not counted
//   block        values that share one scale, or one indivisible group in a file
//   block_bytes  bytes of such a group, scales included
//   scale        where the scales are, see enum dtype_scale
//   gguf         type number in a GGUF file, -1: none
//   safetensors  type name in a safetensors file, NULL: none
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum dtype_use {
    DTYPE_USE_NONE = 0,
    DTYPE_USE_W = 1,
    DTYPE_USE_KV = 2,
    DTYPE_USE_W_KV = 3,
    DTYPE_USE_LATENT = 4,
    DTYPE_USE_CACHE = DTYPE_USE_KV | DTYPE_USE_LATENT,
};

enum dtype_scale {
    DTYPE_SCALE_NONE,
    DTYPE_SCALE_INSIDE, // each block carries its own, interleaved with the data
    DTYPE_SCALE_LAYER,  // one f32 per layer and side, outside the page
    DTYPE_SCALE_VECTOR, // one f32 per (token, head), in the page
    DTYPE_SCALE_BLOCK,  // one E4M3 per block, in the page, on top of one f32 per layer
};

//    id           word                   use   bits block bytes scale   gguf safetensors
// clang-format off
#define DTYPES(X)                                                                     \
    X(F32,         "float32",             W_KV, 32,   1,   4, NONE,      0, "F32")     \
    X(F16,         "float16",             W_KV, 16,   1,   2, NONE,      1, "F16")     \
    X(BF16,        "bfloat16",            W_KV, 16,   1,   2, NONE,     30, "BF16")    \
    X(FP8_E4M3,    "fp8_e4m3",            KV,    8,   1,   1, LAYER,    -1, "F8_E4M3") \
    X(FP8_E5M2,    "fp8_e5m2",            KV,    8,   1,   1, LAYER,    -1, "F8_E5M2") \
    X(INT8_TOKEN,  "int8_per_token_head", KV,    8,   1,   1, VECTOR,   -1, NULL)      \
    X(FP8_TOKEN,   "fp8_per_token_head",  KV,    8,   1,   1, VECTOR,   -1, NULL)      \
    X(INT4_TOKEN,  "int4_per_token_head", KV,    4,   2,   1, VECTOR,   -1, NULL)      \
    X(NVFP4,       "nvfp4",               KV,    4,  16,   9, BLOCK,    -1, NULL)      \
    X(NVFP4_4OVER6, "nvfp4_4over6",       KV,    4,  16,   9, BLOCK,    -1, NULL)      \
    X(FP8_DS_MLA,  "fp8_ds_mla",          LATENT, 8, 576, 656, INSIDE,  -1, NULL)      \
    X(Q4_0,        "Q4_0",                W,     4,  32,  18, INSIDE,    2, NULL)      \
    X(Q4_1,        "Q4_1",                W,     4,  32,  20, INSIDE,    3, NULL)      \
    X(Q5_0,        "Q5_0",                W,     5,  32,  22, INSIDE,    6, NULL)      \
    X(Q5_1,        "Q5_1",                W,     5,  32,  24, INSIDE,    7, NULL)      \
    X(Q8_0,        "Q8_0",                W,     8,  32,  34, INSIDE,    8, NULL)      \
    X(Q2_K,        "Q2_K",                W,     2, 256,  84, INSIDE,   10, NULL)      \
    X(Q3_K,        "Q3_K",                W,     3, 256, 110, INSIDE,   11, NULL)      \
    X(Q4_K,        "Q4_K",                W,     4, 256, 144, INSIDE,   12, NULL)      \
    X(Q5_K,        "Q5_K",                W,     5, 256, 176, INSIDE,   13, NULL)      \
    X(Q6_K,        "Q6_K",                W,     6, 256, 210, INSIDE,   14, NULL)      \
    X(IQ4_NL,      "IQ4_NL",              W,     4,  32,  18, INSIDE,   20, NULL)      \
    X(IQ4_XS,      "IQ4_XS",              W,     4, 256, 136, INSIDE,   23, NULL)      \
    X(MXFP4_GGUF,  "MXFP4",               W,     4,  32,  17, INSIDE,   39, NULL)      \
    X(NVFP4_GGUF,  "NVFP4",               W,     4,  64,  36, INSIDE,   40, NULL)      \
    X(FP8_32,      "FP8",                 W,     8,  32,  36, INSIDE,   -1, NULL)      \
    X(F64,         "float64",             NONE, 64,   1,   8, NONE,     28, "F64")     \
    X(I8,          "int8",                NONE,  8,   1,   1, NONE,     24, "I8")      \
    X(U8,          "uint8",               NONE,  8,   1,   1, NONE,     -1, "U8")      \
    X(I16,         "int16",               NONE, 16,   1,   2, NONE,     25, "I16")     \
    X(I32,         "int32",               NONE, 32,   1,   4, NONE,     26, "I32")     \
    X(I64,         "int64",               NONE, 64,   1,   8, NONE,     27, "I64")     \
    X(U16,         "uint16",              NONE, 16,   1,   2, NONE,     -1, "U16")     \
    X(U32,         "uint32",              NONE, 32,   1,   4, NONE,     -1, "U32")     \
    X(U64,         "uint64",              NONE, 64,   1,   8, NONE,     -1, "U64")     \
    X(FP8_E8M0,    "fp8_e8m0",            NONE,  8,   1,   1, NONE,     -1, "F8_E8M0") \
    X(BOOL,        "bool",                NONE,  8,   1,   1, NONE,     -1, "BOOL")
// clang-format on

// KV cache formats of other engines that nibble refuses: bits per value, and the reason.
// clang-format off
#define KV_WORDS_REFUSED(X)                                                                                  \
    X("fp8_inc",            8, "it is the cache format of Gaudi accelerators, which nibble does not run on") \
    X("turboquant_k8v4",    6, "nibble has no kernel for turboquant formats")                                \
    X("turboquant_4bit_nc", 4, "nibble has no kernel for turboquant formats")                                \
    X("turboquant_k3v4_nc", 4, "nibble has no kernel for turboquant formats")                                \
    X("turboquant_3bit_nc", 3, "nibble has no kernel for turboquant formats")
// clang-format on

enum dtype {
#define X(id, ...) DTYPE_##id,
    DTYPES(X)
#undef X
        DTYPE_COUNT
};

struct dtype_info {
    const char *word;
    enum dtype_use use;
    int bits, block, block_bytes;
    enum dtype_scale scale;
    int gguf;
    const char *safetensors;
};

extern const struct dtype_info dtype_table[DTYPE_COUNT];

// Sets of formats are bit masks.
#define DTYPE_BIT(id) ((uint64_t)1 << DTYPE_##id)
static_assert(DTYPE_COUNT <= 64, "a set of dtypes fits a 64-bit mask");

static inline const char *dtype_word(enum dtype dtype) { return dtype_table[dtype].word; }

// Each returns true and sets *out if a row has that name or number.
bool dtype_from_gguf(uint32_t type, enum dtype *out);
bool dtype_from_safetensors(struct bytes name, enum dtype *out);
bool dtype_from_kv_word(struct bytes word, enum dtype *out); // exact, lower case; accepts the alias fp8, not `auto`
const char *dtype_kv_word_refusal(struct bytes word);        // the reason for a format in KV_WORDS_REFUSED, else NULL
int dtype_kv_word_refused_bits(struct bytes word);           // the refused format's bits per value, else 0

// Bytes of `values` consecutive values in a weight tensor; values must be whole blocks.
size_t dtype_bytes(enum dtype dtype, size_t values);

#endif
