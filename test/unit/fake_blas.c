// SPDX-License-Identifier: Apache-2.0
// test/unit/fake_blas.c: a library that stands in for libcublasLt.so.13: plain products of matrices that lie column by
// column in the host's memory, as the fake GPU's do.
#include "fake_blas.h"

#include <stdlib.h>
#include <string.h>

#include "kernel/minifloat.h"

struct fake_blas fake_blas;

enum { R_32F = 0, R_16F = 2, R_16BF = 14, R_E2M1 = 33, SCALES_OF_16 = 1, PREFER_REDUCTIONS = 3 };
enum { INVALID_VALUE = 7, CHOICE_BYTES = 96 };

struct layout {
    int type;
    uint64_t rows, cols;
    int64_t stride;
};

struct desc {
    int transposed, a_scaling, b_scaling;
    const uint8_t *a_scales, *b_scales;
};

#define BEGIN(symbol)                                            \
    if (fake_blas.failing && !strcmp(fake_blas.failing, symbol)) \
        return INVALID_VALUE;

static int make(void **out, size_t bytes)
{
    *out = calloc(1, bytes);
    fake_blas.live++;
    return 0;
}

static int give_back(void *thing)
{
    free(thing);
    fake_blas.live--;
    return 0;
}

const char *cublasLtGetStatusName(int status) { return status == INVALID_VALUE ? "CUBLAS_STATUS_FAKE" : "?"; }
int cublasLtCreate(void **handle) { BEGIN("cublasLtCreate") return make(handle, 1); }
int cublasLtDestroy(void *handle) { return give_back(handle); }

int cublasLtMatmulDescCreate(void **desc, int compute, int scale_type)
{
    BEGIN("cublasLtMatmulDescCreate")
    return compute == 68 && scale_type == R_32F ? make(desc, sizeof(struct desc)) : INVALID_VALUE;
}

int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value, size_t bytes)
{
    BEGIN("cublasLtMatmulDescSetAttribute")
    struct desc *known = desc;
    const struct {
        int attribute;
        void *slot;
        size_t bytes;
    } slots[] = {
        { 3, &known->transposed, sizeof(int) },   { 17, &known->a_scales, sizeof(void *) },
        { 18, &known->b_scales, sizeof(void *) }, { 31, &known->a_scaling, sizeof(int) },
        { 32, &known->b_scaling, sizeof(int) },
    };
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (slots[i].attribute == attribute && slots[i].bytes == bytes)
            return memcpy(slots[i].slot, value, bytes), 0;
    return INVALID_VALUE;
}

int cublasLtMatmulDescDestroy(void *desc) { return give_back(desc); }

int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride)
{
    BEGIN("cublasLtMatrixLayoutCreate")
    make(layout, sizeof(struct layout));
    *(struct layout *)*layout = (struct layout){ type, rows, cols, stride };
    return 0;
}

int cublasLtMatrixLayoutDestroy(void *layout) { return give_back(layout); }

int cublasLtMatmulPreferenceCreate(void **out)
{
    BEGIN("cublasLtMatmulPreferenceCreate")
    return make(out, sizeof(uint32_t));
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes)
{
    BEGIN("cublasLtMatmulPreferenceSetAttribute")
    if (attribute == PREFER_REDUCTIONS)
        memcpy(preference, value, sizeof(uint32_t));
    return preference && attribute >= 0 && value && bytes ? 0 : INVALID_VALUE;
}

int cublasLtMatmulPreferenceDestroy(void *preference) { return give_back(preference); }

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, void *choices, int *found)
{
    BEGIN("cublasLtMatmulAlgoGetHeuristic")
    memset(choices, 0, (size_t)wanted * CHOICE_BYTES);
    *found = fake_blas.knows_nothing ? 0 : 1;
    fake_blas.searches++;
    fake_blas.searched_rows = (int)((struct layout *)b)->cols;
    fake_blas.in_parts = *(uint32_t *)preference != 0;
    return handle && desc && a && c && d && preference ? 0 : INVALID_VALUE;
}

int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c, void *d, const void *algorithm,
                            void *checked)
{
    BEGIN("cublasLtMatmulAlgoCheck")
    return handle && desc && a && b && c && d && algorithm && checked ? 0 : INVALID_VALUE;
}

static float value_at(const void *data, const struct layout *layout, uint64_t row, uint64_t col)
{
    uint64_t at = row + col * (uint64_t)layout->stride;
    if (layout->type == R_32F)
        return ((const float *)data)[at];
    uint16_t code = ((const uint16_t *)data)[at];
    return layout->type == R_16F ? f16_to_f32(code) : bf16_to_f32(code);
}

// Two codes in a byte; scales of sixteen in tiles of 128 columns by four.
static float scaled_at(const uint8_t *data, const uint8_t *scales, const struct layout *layout, uint64_t row,
                       uint64_t col)
{
    uint64_t at = row + col * (uint64_t)layout->stride, tiles = (layout->rows / 16 + 3) / 4;
    uint64_t in_tile = col % 32 * 16 + col / 32 % 4 * 4 + row / 16 % 4;
    return e2m1_to_f32(data[at / 2] >> at % 2 * 4 & 15)
        * e4m3_to_f32(scales[(col / 128 * tiles + row / 64) * 512 + in_tile]);
}

static float operand_at(const void *data, int scaling, const uint8_t *scales, const struct layout *layout, uint64_t row,
                        uint64_t col)
{
    return layout->type == R_E2M1 && scaling == SCALES_OF_16 ? scaled_at(data, scales, layout, row, col)
                                                             : value_at(data, layout, row, col);
}

static void set_value(void *data, const struct layout *layout, uint64_t row, uint64_t col, float value)
{
    uint64_t at = row + col * (uint64_t)layout->stride;
    if (layout->type == R_32F)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = layout->type == R_16F ? f32_to_f16(value) : f32_to_bf16(value);
}

int cublasLtMatmul(void *handle, void *desc, const float *alpha, const void *a, const struct layout *a_layout,
                   const void *b, const struct layout *b_layout, const float *beta, const void *c,
                   const struct layout *c_layout, void *d, const struct layout *d_layout, const void *algorithm,
                   void *workspace, size_t workspace_bytes, void *stream)
{
    BEGIN("cublasLtMatmul")
    const struct desc *known = desc;
    if (!handle || !known->transposed || !algorithm || !workspace || !workspace_bytes || !stream
        || a_layout->rows != b_layout->rows || d_layout->rows != a_layout->cols || d_layout->cols != b_layout->cols)
        return INVALID_VALUE;
    for (uint64_t row = 0; row < d_layout->rows; row++)
        for (uint64_t col = 0; col < d_layout->cols; col++) {
            float sum = 0;
            for (uint64_t k = 0; k < a_layout->rows; k++)
                sum += operand_at(a, known->a_scaling, known->a_scales, a_layout, k, row)
                    * operand_at(b, known->b_scaling, known->b_scales, b_layout, k, col);
            float before = *beta != 0 ? *beta * value_at(c, c_layout, row, col) : 0;
            set_value(d, d_layout, row, col, *alpha * sum + before);
        }
    return 0;
}
