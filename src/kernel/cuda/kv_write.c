// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_write.c: the rows of kv_write.cu, which quantise K and V into the paged cache: every cache format, any
// two of them together; and the Hadamard transform of keys and queries by itself.
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, CTA_WARPS = 4, TRANSFORM_LANE_VALUES = 16 };

struct kv_write_variant {
    int lane_values; // of a vector, that a lane holds
};

// Warps that hold so many vectors at once.
static int warps_for(int vectors, int dim, int lane_values)
{
    int lanes = 1;
    while (lanes * lane_values < dim)
        lanes *= 2;
    return (vectors * lanes + WARP - 1) / WARP;
}

static int describe_kv_write(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                             struct cuda_call *calls)
{
    const struct kv_write_args *args = arguments;
    const struct cuda_kv_write params = { .batch = *args->batch->on_device,
                                          .cache = cuda_place_make(&args->cache),
                                          .sink = cuda_place_make(&args->sink),
                                          .sink_pages = args->sink_pages,
                                          .scale_search = args->scale_search,
                                          .rope = args->rope ? cuda_rope_make(args->rope) : (struct cuda_rope){ 0 },
                                          .transform = args->transform ? cuda_transform_make(args->transform)
                                                                       : (struct cuda_transform){ 0 },
                                          .k = (const uint16_t *)(const void *)args->k,
                                          .v = (const uint16_t *)(const void *)args->v };
    int queries = args->rope ? params.rope.heads : params.transform.heads;
    int k_dim = params.cache.k_dim, v_dim = params.cache.v_dim, heads = params.cache.heads;
    const struct kv_write_variant *variant = kernel->variant;
    int warps = warps_for(queries, k_dim, variant->lane_values) + warps_for(heads, k_dim, variant->lane_values)
        + warps_for(heads, v_dim, variant->lane_values);
    int cta_warps = shape->rows <= KERNEL_DECODE_ROWS_MAX ? 1 : CTA_WARPS; // in decode each warp gets an SM, if it can
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1), cuda_blocks(warps, cta_warps),
                              (unsigned)(cta_warps * WARP), &params, sizeof params);
    return 1;
}

static int describe_transform(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                              struct cuda_call *calls)
{
    const struct transform_args *args = arguments;
    const struct cuda_transform_rows params = { .rows = args->rows, .transform = cuda_transform_make(args) };
    int warps = warps_for(args->heads, args->head_dim, TRANSFORM_LANE_VALUES)
        + warps_for(args->kv_heads, args->head_dim, TRANSFORM_LANE_VALUES);
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1), cuda_blocks(warps, CTA_WARPS),
                              CTA_WARPS * WARP, &params, sizeof params);
    return 1;
}

// Few tokens are written soonest with the fewest values in a lane that hold a vector, many tokens with the most. The
// bytes are the same.
#define UP_TO_64 (KERNEL_DECODE | KERNEL_ROWS_32 | KERNEL_ROWS_64)

#define ROW(word, id, loads, rank, dim)                                                                         \
    .name = word, .functions = { word }, .device = DEVICE_CUDA, .op = OP_##id, .load = loads, .priority = rank, \
    .architectures = cuda_all_architectures, .head_dim_max = dim
#define KV_WRITE(values, loads, rank)                                                                     \
    ROW("kv_write_" #values, KV_WRITE, loads, rank, (values) * WARP), .k = CUDA_ALL_KV, .v = CUDA_ALL_KV, \
        .sink = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16),                                        \
        .fuses = KERNEL_FUSES_ROPE | KERNEL_FUSES_TRANSFORM, .describe = describe_kv_write,               \
        .variant = &(const struct kv_write_variant)                                                       \
    {                                                                                                     \
        values                                                                                            \
    }

const struct kernel cuda_kv_write_rows[] = {
    { KV_WRITE(4, UP_TO_64, 3) },
    { KV_WRITE(8, UP_TO_64, 2) },
    { KV_WRITE(16, KERNEL_ANY, 1) },
    { ROW("transform", TRANSFORM, KERNEL_ANY, 1, HEAD_DIM_MAX), .describe = describe_transform },
};
const int cuda_kv_write_count = sizeof cuda_kv_write_rows / sizeof *cuda_kv_write_rows;
