// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/per_head_linear.c: the rows of the batched GEMM over heads (per_head_linear.cu) that latent attention
// (MLA) needs for w_uk and w_uv.
#include "kernel/cuda/per_head_linear.h"

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

struct per_head_variant {
    int tokens; // of a tile
};

static int describe_per_head_linear(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                                    struct cuda_call *calls)
{
    const struct per_head_linear_args *args = arguments;
    const struct per_head_variant *variant = kernel->variant;
    const struct cuda_per_head_linear params = { .rows = args->rows,
                                                 .x = (const uint16_t *)(const void *)args->x,
                                                 .y = (uint16_t *)(void *)args->y,
                                                 .weight = args->weight.data,
                                                 .heads = args->heads,
                                                 .in = args->in,
                                                 .out = args->out,
                                                 .rest = args->rest,
                                                 .dtype = args->weight.dtype,
                                                 .scale = args->weight.scale };
    calls[0] = cuda_call_make(kernel->functions[0], (unsigned)args->heads, cuda_blocks(args->out, PER_HEAD_ROWS),
                              PER_HEAD_THREADS, &params, sizeof params);
    calls[0].grid[2] = cuda_blocks(shape->rows, variant->tokens);
    return 1;
}

#define ROW(word, loads, tile)                                                                                   \
    {                                                                                                            \
        .name = word, .device = DEVICE_CUDA, .op = OP_PER_HEAD_LINEAR, .priority = 1, .load = loads,             \
        .architectures = cuda_all_architectures, .weights = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16),   \
        .describe = describe_per_head_linear, .functions = { word }, .variant = &(const struct per_head_variant) \
        {                                                                                                        \
            tile                                                                                                 \
        }                                                                                                        \
    }

const struct kernel cuda_per_head_linear_rows[] = {
    ROW("per_head_linear_skinny", KERNEL_DECODE, PER_HEAD_SKINNY_TOKENS),
    ROW("per_head_linear_wide", KERNEL_PREFILL, PER_HEAD_WIDE_TOKENS),
};
const int cuda_per_head_linear_count = sizeof cuda_per_head_linear_rows / sizeof *cuda_per_head_linear_rows;
