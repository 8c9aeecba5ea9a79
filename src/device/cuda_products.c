// SPDX-License-Identifier: Apache-2.0
// device/cuda_products.c: GEMM by cuBLASLt. cuBLASLt is column-major: a row-major y = x w^T is y^T = w x^T to it, with
// w transposed, m outputs and n rows. Descriptors and algorithms are cached per shape.
#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "device/cuda_blas.h"
#include "device/cuda_parts.h"

enum { WORKSPACE_BYTES = 32 << 20, ALIGNMENT_BYTES = 16, KNOWN_MAX = 4096 };

// Up to ROWS_ALIKE_MAX rows, all GEMMs use the algorithm that the heuristic chooses for ROWS_OF_STEP rows.
enum { ROWS_ALIKE_MAX = 256, ROWS_OF_STEP = 128 };

// A cached GEMM shape: its descriptor, layouts and algorithm.
struct known {
    enum dtype dtype;
    int rows, in, out;
    bool f32_out;
    void *desc, *w, *x, *y;
    struct blas_choice choice;
};

struct cuda_products {
    struct blas blas;
    void *handle, *workspace;
    void *whole, *parted; // preferences: without and with split-K
    struct known *known;
    int count;
};

// ---- cached shapes ----

static bool check_blas(const struct cuda *cuda, int status, const char *call, const struct known *kind,
                       struct error *err)
{
    return !status
        || fail(err, "GPU %d: the product of %d x %d %s activations with %d x %d weights: %s failed with %s",
                cuda->ordinal, kind->rows, kind->in, dtype_word(kind->dtype), kind->out, kind->in, call,
                cuda->products->blas.status_name(status));
}

static void forget(const struct blas *blas, struct known *known)
{
    if (known->desc)
        blas->desc_free(known->desc);
    void *const layouts[] = { known->w, known->x, known->y };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            blas->layout_free(layouts[i]);
}

static void forget_all(struct cuda_products *products)
{
    for (int i = 0; i < products->count; i++)
        forget(&products->blas, &products->known[i]);
    products->count = 0;
}

static int type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? BLAS_R_16BF : dtype == DTYPE_F16 ? BLAS_R_16F : BLAS_R_E2M1;
}

static int point_at_scales(const struct blas *blas, void *desc, const void *w, const void *x)
{
    int status = blas->desc_set(desc, BLAS_DESC_A_SCALES, &w, sizeof w);
    return status ? status : blas->desc_set(desc, BLAS_DESC_B_SCALES, &x, sizeof x);
}

// The scale pointers are set for each GEMM; the heuristic only needs valid ones.
static int describe_scales(const struct cuda_products *products, void *desc)
{
    const struct blas *blas = &products->blas;
    const int scaling = BLAS_SCALES_OF_16_E4M3;
    int status = blas->desc_set(desc, BLAS_DESC_A_SCALING, &scaling, sizeof scaling);
    status = status ? status : blas->desc_set(desc, BLAS_DESC_B_SCALING, &scaling, sizeof scaling);
    return status ? status : point_at_scales(blas, desc, products->workspace, products->workspace);
}

static bool describe(const struct cuda *cuda, struct known *known, struct error *err)
{
    const struct blas *blas = &cuda->products->blas;
    const int transposed = BLAS_TRANSPOSED, type = type_of(known->dtype);
    const int out_type = known->f32_out ? BLAS_R_32F : type == BLAS_R_E2M1 ? BLAS_R_16BF : type;
    uint64_t rows = (uint64_t)known->rows, in = (uint64_t)known->in, out = (uint64_t)known->out;
    known->desc = known->w = known->x = known->y = NULL;
    int status = blas->desc_new(&known->desc, BLAS_COMPUTE_32F, BLAS_R_32F);
    status = status ? status : blas->desc_set(known->desc, BLAS_DESC_TRANSA, &transposed, sizeof transposed);
    if (!status && type == BLAS_R_E2M1)
        status = describe_scales(cuda->products, known->desc);
    status = status ? status : blas->layout_new(&known->w, type, in, out, known->in);
    status = status ? status : blas->layout_new(&known->x, type, in, rows, known->in);
    status = status ? status : blas->layout_new(&known->y, out_type, out, rows, known->out);
    if (check_blas(cuda, status, "cublasLtMatrixLayoutCreate", known, err))
        return true;
    forget(blas, known);
    return false;
}

static bool choose(const struct cuda *cuda, struct known *known, void *preference, struct error *err)
{
    const struct cuda_products *products = cuda->products;
    int found = 0;
    int status = products->blas.choose(products->handle, known->desc, known->w, known->x, known->y, known->y,
                                       preference, 1, &known->choice, &found);
    if (!status && !found)
        return fail(err, "GPU %d: cuBLASLt has no way to multiply %d x %d %s activations with %d x %d weights",
                    cuda->ordinal, known->rows, known->in, dtype_word(known->dtype), known->out, known->in);
    return check_blas(cuda, status, "cublasLtMatmulAlgoGetHeuristic", known, err);
}

// Takes the algorithm chosen for ROWS_OF_STEP rows, if it supports this number of rows.
static bool choose_as_of_step(const struct cuda *cuda, struct known *known)
{
    const struct cuda_products *products = cuda->products;
    struct known step = *known;
    struct blas_choice checked;
    struct error ignored;
    step.rows = ROWS_OF_STEP;
    if (!describe(cuda, &step, &ignored))
        return false;
    bool ok = choose(cuda, &step, products->parted, &ignored)
        && !products->blas.check(products->handle, known->desc, known->w, known->x, known->y, known->y,
                                 step.choice.algorithm, &checked);
    forget(&products->blas, &step);
    if (ok)
        known->choice = step.choice;
    return ok;
}

// Batch invariance: a row's bits must not depend on the number of rows. Up to ROWS_ALIKE_MAX rows, split-K is needed to
// fill a GPU, and one algorithm is used for all. Beyond that, algorithms without split-K are used: each sums over k in
// one piece.
static bool learn(const struct cuda *cuda, struct known *known, struct error *err)
{
    if (!describe(cuda, known, err))
        return false;
    if (known->rows <= ROWS_ALIKE_MAX && choose_as_of_step(cuda, known))
        return true;
    if (choose(cuda, known, cuda->products->whole, err))
        return true;
    forget(&cuda->products->blas, known);
    return false;
}

static const struct known *find_kind(struct cuda *cuda, const struct cuda_product *product, struct error *err)
{
    struct cuda_products *products = cuda->products;
    for (int i = 0; i < products->count; i++) {
        const struct known *known = &products->known[i];
        if (known->rows == product->rows && known->in == product->in && known->out == product->out
            && known->dtype == product->dtype && known->f32_out == product->f32_out)
            return known;
    }
    struct known known = { .dtype = product->dtype,
                           .rows = product->rows,
                           .in = product->in,
                           .out = product->out,
                           .f32_out = product->f32_out };
    if (!learn(cuda, &known, err))
        return NULL;
    if (products->count == KNOWN_MAX)
        forget_all(products);
    products->known = memory_grow(products->known, (size_t)products->count + 1, sizeof *products->known);
    products->known[products->count] = known;
    return &products->known[products->count++];
}

// ---- opening and GEMM ----

static int make_preference(const struct blas *blas, void **preference, uint32_t reductions)
{
    uint64_t workspace = WORKSPACE_BYTES;
    uint32_t alignment = ALIGNMENT_BYTES;
    int status = blas->preference_new(preference);
    if (!status)
        status = blas->preference_set(*preference, BLAS_PREFER_WORKSPACE_MAX, &workspace, sizeof workspace);
    if (!status)
        status = blas->preference_set(*preference, BLAS_PREFER_REDUCTIONS, &reductions, sizeof reductions);
    for (int i = 0; i < BLAS_ALIGNMENTS && !status; i++)
        status = blas->preference_set(*preference, BLAS_PREFER_ALIGNMENT_A + i, &alignment, sizeof alignment);
    return status;
}

bool cuda_prepare_products(struct cuda *cuda, struct error *err)
{
    if (cuda->products)
        return true;
    struct cuda_products *products = memory_new(1, sizeof *products);
    if (!cuda_blas_open(&products->blas, err))
        return free(products), false;
    cuda->products = products;
    cuda_enter(cuda);
    int status = products->blas.open(&products->handle);
    status = status ? status : make_preference(&products->blas, &products->whole, BLAS_NO_REDUCTION);
    status = status ? status : make_preference(&products->blas, &products->parted, BLAS_REDUCTION_IN_ORDER);
    if (status)
        fail(err, "GPU %d: cuBLASLt does not start: %s", cuda->ordinal, products->blas.status_name(status));
    else if (cuda_check(cuda, cuda->driver.memory_new(&products->workspace, WORKSPACE_BYTES), "cuMemAlloc", err,
                        "the workspace of cuBLASLt"))
        return true;
    cuda_products_close(cuda);
    return false;
}

void cuda_products_close(struct cuda *cuda)
{
    struct cuda_products *products = cuda->products;
    if (!products)
        return;
    forget_all(products);
    cuda_free(cuda, products->workspace);
    void *const preferences[] = { products->whole, products->parted };
    for (size_t i = 0; i < sizeof preferences / sizeof *preferences; i++)
        if (preferences[i])
            products->blas.preference_free(preferences[i]);
    if (products->handle)
        products->blas.close(products->handle);
    free(products->known);
    free(products);
    cuda->products = NULL;
}

static bool is_aligned(const void *address) { return (uintptr_t)address % ALIGNMENT_BYTES == 0; }

const char *cuda_product_name(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? "cublaslt_bf16" : dtype == DTYPE_F16 ? "cublaslt_f16" : "cublaslt_nvfp4";
}

bool cuda_multiply(struct cuda *cuda, const struct cuda_product *product, struct error *err)
{
    bool scaled = product->dtype == DTYPE_NVFP4_GGUF;
    const float alpha = product->factor, beta = product->accumulate;
    assert(scaled || product->dtype == DTYPE_BF16 || product->dtype == DTYPE_F16);
    assert(is_aligned(product->x) && is_aligned(product->w) && is_aligned(product->y));
    assert(is_aligned(product->x_scales) && is_aligned(product->w_scales));
    if (!cuda_prepare_products(cuda, err))
        return false;
    cuda_enter(cuda);
    const struct known *kind = find_kind(cuda, product, err);
    if (!kind)
        return false;
    const struct cuda_products *products = cuda->products;
    int status = 0;
    if (scaled)
        status = point_at_scales(&products->blas, kind->desc, product->w_scales, product->x_scales);
    if (!check_blas(cuda, status, "cublasLtMatmulDescSetAttribute", kind, err))
        return false;
    status = products->blas.multiply(products->handle, kind->desc, &alpha, product->w, kind->w, product->x, kind->x,
                                     &beta, product->y, kind->y, product->y, kind->y, kind->choice.algorithm,
                                     products->workspace, WORKSPACE_BYTES, cuda->stream);
    if (!check_blas(cuda, status, "cublasLtMatmul", kind, err))
        return false;
    cuda->last = "a product by cuBLASLt";
    cuda->product_count[product->dtype]++;
    return true;
}
