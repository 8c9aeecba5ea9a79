// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill.c: the rows of prefill attention (FlashAttention-2 style, attention_prefill_*.cu), one
// for each head size. They serve the sequences of a step with more than DECODE_ROWS_MAX rows; the others are decode's
// (attention_decode.c).
#include "kernel/cuda/attention_decode.h"
#include "kernel/cuda/attention_prefill_shapes.h"
#include "kernel/cuda/attention_rows.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, ROWS_MIN = DECODE_ROWS_MAX + 1 };

struct prefill_variant {
    int rows, threads; // of a CTA
};

struct cuda_attention attention_params(const struct attention_args *args)
{
    return (struct cuda_attention){ .batch = *args->batch->on_device,
                                    .cache = cuda_place_make(&args->cache),
                                    .sink = cuda_place_make(&args->sink),
                                    .sink_pages = args->sink_pages,
                                    .q = (const uint16_t *)(const void *)args->q,
                                    .out = (uint16_t *)(void *)args->out,
                                    .sinks = args->sinks,
                                    .heads = args->heads,
                                    .window = args->window,
                                    .group = args->group,
                                    .lead = args->lead,
                                    .scale = args->scale,
                                    .softcap = args->softcap };
}

static int describe_prefill(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                            struct cuda_call *calls)
{
    const struct attention_args *args = arguments;
    const struct prefill_variant *variant = kernel->variant;
    if (shape->rows_each < ROWS_MIN)
        return 0;
    struct cuda_attention params = attention_params(args);
    params.rows_min = ROWS_MIN;
    params.rows_max = INT32_MAX;
    int64_t rows = (int64_t)shape->tokens * args->group;
    int sequences = shape->tokens / ROWS_MIN < shape->sequences ? shape->tokens / ROWS_MIN : shape->sequences;
    calls[0] = cuda_call_make(kernel->functions[0], (unsigned)args->cache.layout.k.heads,
                              cuda_blocks(rows / variant->rows + sequences, 1), (unsigned)variant->threads, &params,
                              sizeof params);
    calls[0].shared_bytes = (unsigned)kernel->shared_bytes;
    return 1;
}

// A row serves every head size up to its own; the smallest that holds a head comes first.
#define RANK_64 3
#define RANK_128 2
#define RANK_256 1

#define ROW(word, dim, tile_rows, tile_threads)                                                                     \
    .name = word, .functions = { word }, ATTENTION_ROW, .load = KERNEL_PREFILL, .k = CUDA_ALL_KV, .v = CUDA_ALL_KV, \
    .head_dim_multiple = ATTENTION_DIM_MULTIPLE, .head_dim_max = dim, .describe = describe_prefill,                 \
    .variant = &(const struct prefill_variant){ tile_rows, tile_threads },                                          \
    .slow = "float16 is converted to bfloat16 on its way to the tensor cores, at half the speed of bfloat16; "      \
            "--kv-cache-dtype bfloat16 avoids it",                                                                  \
    .slow_kv = DTYPE_BIT(F16)

const struct kernel cuda_attention_prefill_rows[] = {
#define X(dim, tokens, room, batches)                                                       \
    { ROW("attention_prefill_wgmma_" #dim, dim, PREFILL_WGMMA_ROWS, PREFILL_WGMMA_THREADS), \
      .priority = 3 + RANK_##dim, .architectures = cuda_wgmma_architectures,                \
      .shared_bytes = PREFILL_WGMMA_BYTES(dim, tokens, room, batches) },
    PREFILL_WGMMA_KERNELS(X)
#undef X
#define X(dim, warps, blocks, tokens)                                                                           \
    { ROW("attention_prefill_mma_" #dim, dim, (warps) * (blocks) * 16, (warps) * WARP), .priority = RANK_##dim, \
      .architectures = cuda_all_architectures,                                                                  \
      .shared_bytes = PREFILL_TILES_BYTES(dim, (warps) * (blocks) * 16, tokens, 1) },
        PREFILL_MMA_KERNELS(X)
#undef X
};
const int cuda_attention_prefill_count = sizeof cuda_attention_prefill_rows / sizeof *cuda_attention_prefill_rows;
