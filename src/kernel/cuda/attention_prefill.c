// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill.c: the rows of attention. Sequences with few rows in a step are decode's, all others
// prefill's.
#include <assert.h>

#include "kernel/cuda/attention_decode.h"
#include "kernel/cuda/attention_prefill_shapes.h"
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, HEAD_DIM_MULTIPLE = 16, PREFILL_DIM_MAX = 256 };

// By head size, ascending.
struct prefill_kernel {
    const char *function;
    int dim, rows, threads, shared_bytes;
};

static const struct prefill_kernel wgmma_kernels[] = {
#define X(dim, tokens, room, batches)                                                  \
    { "attention_prefill_wgmma_" #dim, dim, PREFILL_WGMMA_ROWS, PREFILL_WGMMA_THREADS, \
      PREFILL_WGMMA_BYTES(dim, tokens, room, batches) },
    PREFILL_WGMMA_KERNELS(X)
#undef X
};

static const struct prefill_kernel mma_kernels[] = {
#define X(dim, warps, blocks, tokens)                                              \
    { "attention_prefill_mma_" #dim, dim, (warps) * (blocks) * 16, (warps) * WARP, \
      PREFILL_TILES_BYTES(dim, (warps) * (blocks) * 16, tokens, 1) },
    PREFILL_MMA_KERNELS(X)
#undef X
};

static struct cuda_call prefill_call(const struct prefill_kernel *kernel, const struct attention_args *args,
                                     const struct cuda_shape *shape)
{
    enum { ROWS_MIN = DECODE_ROWS_MAX + 1 };
    const struct kv_layout *layout = &args->cache.layout;
    int dim = layout->k.dim > layout->v.dim ? layout->k.dim : layout->v.dim, heads = layout->k.heads;
    assert(dim <= PREFILL_DIM_MAX && dim % HEAD_DIM_MULTIPLE == 0);
    while (kernel->dim < dim)
        kernel++;
    struct cuda_attention params = {
        .batch = *args->batch->on_device,
        .cache = cuda_place_make(&args->cache),
        .sink = cuda_place_make(&args->sink),
        .sink_pages = args->sink_pages,
        .q = (const uint16_t *)(const void *)args->q,
        .out = (uint16_t *)(void *)args->out,
        .sinks = args->sinks,
        .heads = args->heads,
        .window = args->window,
        .rows_min = ROWS_MIN,
        .rows_max = INT32_MAX,
        .group = args->group,
        .lead = args->lead,
        .scale = args->scale,
        .softcap = args->softcap,
    };
    int64_t rows = (int64_t)shape->tokens * args->group;
    int sequences = shape->tokens / ROWS_MIN < shape->sequences ? shape->tokens / ROWS_MIN : shape->sequences;
    struct cuda_call call = cuda_call_make(kernel->function, (unsigned)heads,
                                           cuda_blocks(rows / kernel->rows + sequences, 1), (unsigned)kernel->threads,
                                           &params, sizeof params);
    call.shared_bytes = (unsigned)kernel->shared_bytes;
    return call;
}

static int describe(const struct prefill_kernel *prefill, const struct attention_args *args,
                    const struct cuda_shape *shape, struct cuda_call *calls)
{
    int count = attention_decode_calls(args, shape, DECODE_ROWS_MAX, calls);
    if (shape->rows_each > DECODE_ROWS_MAX)
        calls[count++] = prefill_call(prefill, args, shape);
    return count;
}

static int describe_wgmma(const struct kernel *kernel, const void *args, const struct cuda_shape *shape,
                          struct cuda_call *calls)
{
    return describe(wgmma_kernels, args, shape, calls);
}

static int describe_mma(const struct kernel *kernel, const void *args, const struct cuda_shape *shape,
                        struct cuda_call *calls)
{
    return describe(mma_kernels, args, shape, calls);
}

// Beside what first pages are read in bfloat16: fewer bits, if vectors are not rotated.
#define NARROW (CUDA_ALL_KV & ~(DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16) | DTYPE_BIT(INT4_TOKEN)))

// bfloat16 operands: queries and results have no more bits either.
#define ROW(isa, rank)                                                                                          \
    .name = "attention_" #isa, .device = DEVICE_CUDA, .op = OP_ATTENTION, .priority = rank, .load = KERNEL_ANY, \
    .k = CUDA_ALL_KV, .v = CUDA_ALL_KV, .sink = DTYPE_BIT(BF16), .sink_beside = NARROW,                         \
    .head_dim_multiple = HEAD_DIM_MULTIPLE, .head_dim_max = PREFILL_DIM_MAX, .tolerance = 2e-2f,                \
    .scratch_bytes = attention_decode_scratch, .describe = describe_##isa

const struct kernel cuda_attention_rows[] = {
    { ROW(wgmma, 2), .architectures = cuda_wgmma_architectures, .shared_bytes = PREFILL_WGMMA_BYTES(256, 64, 64, 2) },
    { ROW(mma, 1), .architectures = cuda_all_architectures, .shared_bytes = PREFILL_TILES_BYTES(256, 64, 64, 1) },
};
const int cuda_attention_count = sizeof cuda_attention_rows / sizeof *cuda_attention_rows;
