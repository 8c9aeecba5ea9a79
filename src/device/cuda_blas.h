// SPDX-License-Identifier: Apache-2.0
// device/cuda_blas.h: the part of the cuBLASLt API that nibble uses, declared here and opened at run time.
#ifndef DEVICE_CUDA_BLAS_H
#define DEVICE_CUDA_BLAS_H

#include <stdint.h>

#include "device/cuda_driver.h"

enum { BLAS_R_32F = 0, BLAS_R_16F = 2, BLAS_R_16BF = 14, BLAS_R_E2M1 = 33 };
enum { BLAS_COMPUTE_32F = 68, BLAS_TRANSPOSED = 1, BLAS_SCALES_OF_16_E4M3 = 1 /* VEC16_UE4M3, kernel/nvfp4.h */ };
enum {
    BLAS_DESC_TRANSA = 3,
    BLAS_DESC_A_SCALES = 17,
    BLAS_DESC_B_SCALES = 18,
    BLAS_DESC_A_SCALING = 31,
    BLAS_DESC_B_SCALING = 32,
};
enum { BLAS_PREFER_WORKSPACE_MAX = 1, BLAS_PREFER_REDUCTIONS = 3, BLAS_PREFER_ALIGNMENT_A = 5, BLAS_ALIGNMENTS = 4 };
enum { BLAS_NO_REDUCTION = 0, BLAS_REDUCTION_IN_ORDER = 2 }; // split-K: f32 partial sums, added in order

struct blas_choice { // cublasLtMatmulHeuristicResult_t
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

// name, symbol, arguments. All return 0 for success.
// clang-format off
#define BLAS_CALLS(X)                                                                                                  \
    X(open, "cublasLtCreate", void **handle)                                                                           \
    X(close, "cublasLtDestroy", void *handle)                                                                          \
    X(desc_new, "cublasLtMatmulDescCreate", void **desc, int compute, int scale_type)                                  \
    X(desc_set, "cublasLtMatmulDescSetAttribute", void *desc, int attribute, const void *value, size_t bytes)          \
    X(desc_free, "cublasLtMatmulDescDestroy", void *desc)                                                              \
    X(layout_new, "cublasLtMatrixLayoutCreate", void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride) \
    X(layout_free, "cublasLtMatrixLayoutDestroy", void *layout)                                                        \
    X(preference_new, "cublasLtMatmulPreferenceCreate", void **preference)                                             \
    X(preference_set, "cublasLtMatmulPreferenceSetAttribute", void *preference, int attribute, const void *value,      \
      size_t bytes)                                                                                                    \
    X(preference_free, "cublasLtMatmulPreferenceDestroy", void *preference)                                            \
    X(choose, "cublasLtMatmulAlgoGetHeuristic", void *handle, void *desc, void *a, void *b, void *c, void *d,          \
      void *preference, int wanted, struct blas_choice *choices, int *found)                                           \
    X(check, "cublasLtMatmulAlgoCheck", void *handle, void *desc, void *a, void *b, void *c, void *d,                  \
      const uint64_t *algorithm, struct blas_choice *checked)                                                          \
    X(multiply, "cublasLtMatmul", void *handle, void *desc, const void *alpha, const void *a, void *a_layout,          \
      const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,         \
      const uint64_t *algorithm, void *workspace, size_t workspace_bytes, struct cuda_stream *stream)
// clang-format on

struct blas {
#define X(name, symbol, ...) int (*name)(__VA_ARGS__);
    BLAS_CALLS(X)
#undef X
    const char *(*status_name)(int status);
};

// Finds and loads the library; it is never unloaded.
bool cuda_blas_open(struct blas *blas, struct error *err);

#endif
