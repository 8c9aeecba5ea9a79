// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/latent.c: the rows of multi-head latent attention (MLA, weights absorbed): attention_latent.cu and
// kv_write_latent.cu.
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/latent_split.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, HEAD_DIM_MULTIPLE = 16, COMBINE_THREADS = 128 };

// Formats with a scale per token are missing: the scale would have to be reduced across warps.
#define LATENT_FORMATS (KV_LATENT_FORMATS & ~(DTYPE_BIT(INT8_TOKEN) | DTYPE_BIT(FP8_TOKEN)))

static int describe_attention(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                              struct cuda_call *calls)
{
    const struct attention_args *args = arguments;
    struct cuda_attention params = {
        .batch = *args->batch->on_device,
        .cache = cuda_place_make(&args->cache),
        .q = (const uint16_t *)(const void *)args->q,
        .out = (uint16_t *)(void *)args->out,
        .sinks = args->sinks,
        .partials = args->scratch,
        .partials_each = latent_splits_max(args->heads),
        .heads = args->heads,
        .window = args->window,
        .scale = args->scale,
        .softcap = args->softcap,
    };
    int splits = latent_splits_within(shape->context, args->heads);
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks((int64_t)shape->tokens * latent_ctas(args->heads), 1),
                              (unsigned)splits, LATENT_THREADS, &params, sizeof params);
    calls[0].shared_bytes = LATENT_SHARED_BYTES;
    if (splits == 1)
        return 1;
    calls[1] = cuda_call_make(kernel->functions[1], (unsigned)args->heads, cuda_blocks(shape->sequences, 1),
                              COMBINE_THREADS, &params, sizeof params);
    return 2;
}

static size_t attention_scratch(const struct kernel_extent *extent)
{
    size_t heads = (size_t)extent->heads, dim = (size_t)(extent->width / extent->heads);
    size_t splits = (size_t)latent_splits_max(extent->heads);
    return (size_t)extent->sequences * splits * heads * (dim + LATENT_TAIL) * sizeof(float);
}

static int describe_kv_write(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                             struct cuda_call *calls)
{
    const struct kv_write_args *args = arguments;
    const struct cuda_kv_write params = { .batch = *args->batch->on_device,
                                          .cache = cuda_place_make(&args->cache),
                                          .scale_search = args->scale_search,
                                          .k = (const uint16_t *)(const void *)args->k };
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1), 1, 2 * WARP, &params, sizeof params);
    return 1;
}

#define ROW(id)                                                                                                       \
    .device = DEVICE_CUDA, .op = OP_##id, .priority = 1, .load = KERNEL_ANY, .architectures = cuda_all_architectures, \
    .latents = LATENT_FORMATS, .head_dim_multiple = HEAD_DIM_MULTIPLE, .head_dim_max = HEAD_DIM_MAX

const struct kernel cuda_latent_rows[] = {
    { ROW(ATTENTION), .name = "attention_latent", .functions = { "attention_latent", "attention_latent_combine" },
      .tolerance = 2e-2f, .shared_bytes = LATENT_SHARED_BYTES, .scratch_bytes = attention_scratch,
      .describe = describe_attention },
    { ROW(KV_WRITE), .name = "kv_write_latent", .functions = { "kv_write_latent" }, .describe = describe_kv_write },
};
const int cuda_latent_count = sizeof cuda_latent_rows / sizeof *cuda_latent_rows;
