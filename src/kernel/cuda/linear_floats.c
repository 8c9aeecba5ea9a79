// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_floats.c: rows of linear for float weights, as they lie in the file: GEMM by cuBLASLt for prefill
// with 16-bit ones, and a plain loop without tensor cores (linear_any.cu) for those that no other row takes.
#include "kernel/cuda/linear_rows.h"

// ---- linear_any_*: every shape, slowly ----

enum { ANY_FUNCTION, ANY_NORM }; // a row's functions
enum { ANY_WARPS = 8, ANY_TOKENS = 64 };

static int describe_any(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                        struct cuda_call calls[CUDA_CALLS_MAX])
{
    struct cuda_linear all = linear_params(arguments);
    int tokens = shape->rows < ANY_TOKENS ? shape->rows : ANY_TOKENS, count = 0;
    if (all.norm_weight)
        calls[count++] = linear_normed(kernel->functions[ANY_NORM], &all, shape);
    for (int i = 0; i < all.outputs; i++) {
        struct cuda_linear p = linear_params_at(&all, i);
        calls[count++] = cuda_call_make(kernel->functions[ANY_FUNCTION], cuda_blocks(p.output[0].rows, ANY_WARPS),
                                        (unsigned)tokens, ANY_WARPS * LINEAR_WARP, &p, sizeof p);
    }
    return count;
}

// ---- linear_cublaslt_*: a product knows no bias, and a scale only where it adds ----

enum { PRODUCT, FINISH, CONVERT }; // a row's functions

static struct cuda_call product_of(const struct cuda_linear *p, enum dtype dtype, const struct cuda_shape *shape)
{
    const struct cuda_linear_output *output = &p->output[0];
    return (struct cuda_call){ .product = { .dtype = dtype,
                                            .rows = shape->rows,
                                            .in = p->in,
                                            .out = output->rows,
                                            .x = p->x,
                                            .w = output->weight,
                                            .y = output->y,
                                            .factor = p->residual ? output->scale : 1,
                                            .f32_out = p->residual || p->f32_out,
                                            .accumulate = p->residual } };
}

// y * scale + bias of what a product leaves. Products of float16 give float16 where bfloat16 belongs.
static bool needs_finish(const struct cuda_linear *p, enum dtype dtype)
{
    const struct cuda_linear_output *output = &p->output[0];
    return output->bias || output->scale != 1 || (dtype == DTYPE_F16 && !p->residual && !p->f32_out);
}

static int describe_cublaslt(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                             struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct linear_args *args = arguments;
    struct cuda_linear all = linear_params(args);
    int count = 0;
    if (kernel->functions[CONVERT])
        calls[count++] = linear_converted(kernel->functions[CONVERT], &all, all.scratch, shape);
    for (int i = 0; i < all.outputs; i++) {
        struct cuda_linear p = linear_params_at(&all, i);
        enum dtype dtype = args->output[i].weight.dtype;
        calls[count++] = product_of(&p, dtype, shape);
        if (p.residual)
            p.output[0].scale = 1; // the product has applied it
        if (needs_finish(&p, dtype))
            calls[count++] = linear_elementwise(kernel->functions[FINISH], &p, (int64_t)shape->rows * p.output[0].rows);
    }
    return count;
}

// ---- rows ----

#define FLOATS(word, id) .name = word, LINEAR_CUDA, .architectures = cuda_all_architectures, .weights = DTYPE_BIT(id)
#define ANY_SKINNY                                                                                     \
    .load = KERNEL_DECODE, .priority = 1, .describe = describe_any, .scratch_bytes = linear_x_scratch, \
    .fuses = KERNEL_FUSES_NORM | KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD
#define CUBLASLT .load = KERNEL_PREFILL, .priority = 10, .describe = describe_cublaslt, .fuses = KERNEL_FUSES_ADD

const struct kernel cuda_linear_float_rows[] = {
    { FLOATS("linear_any_skinny_f32", F32), ANY_SKINNY, .slow = LINEAR_SLOW_F32,
      .functions = { "linear_any_f32", "linear_norm" } },
    { FLOATS("linear_any_skinny_f16", F16), ANY_SKINNY, .slow = LINEAR_SLOW_COLUMNS,
      .functions = { "linear_any_f16", "linear_norm" } },
    { FLOATS("linear_any_skinny_bf16", BF16), ANY_SKINNY, .slow = LINEAR_SLOW_COLUMNS,
      .functions = { "linear_any_bf16", "linear_norm" } },
    { FLOATS("linear_any_wide_f32", F32), .load = KERNEL_PREFILL, .priority = 1, .describe = describe_any,
      .fuses = KERNEL_FUSES_ADD, .slow = LINEAR_SLOW_F32, .functions = { "linear_any_f32" } },
    { FLOATS("linear_cublaslt_f16", F16), CUBLASLT, .scratch_bytes = linear_x_scratch,
      .functions = { "cublaslt_f16", "linear_finish_f16", "linear_x_f16" } },
    { FLOATS("linear_cublaslt_bf16", BF16), CUBLASLT, .functions = { "cublaslt_bf16", "linear_finish_bf16" } },
};
const int cuda_linear_float_count = sizeof cuda_linear_float_rows / sizeof *cuda_linear_float_rows;
