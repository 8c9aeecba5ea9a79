// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_write.c: the row of kv_write.cu: every cache format, any two of them together.
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, BLOCK_WARPS = 4, LANE_VALUES = 16 };

// Warps that hold so many vectors at once.
static int warps_for(int vectors, int dim)
{
    int lanes = 1;
    while (lanes * LANE_VALUES < dim)
        lanes *= 2;
    return (vectors * lanes + WARP - 1) / WARP;
}

static int describe_kv_write(const void *arguments, const struct cuda_shape *shape, struct cuda_call *calls)
{
    const struct kv_write_args *args = arguments;
    const struct cuda_kv_write params = { .batch = *args->batch->on_device,
                                          .cache = cuda_place_make(&args->cache),
                                          .rope = args->rope ? cuda_rope_make(args->rope) : (struct cuda_rope){ 0 },
                                          .k = (const uint16_t *)(const void *)args->k,
                                          .v = (const uint16_t *)(const void *)args->v };
    int warps = warps_for(params.rope.heads, params.cache.k_dim) + warps_for(params.cache.heads, params.cache.k_dim)
              + warps_for(params.cache.heads, params.cache.v_dim);
    calls[0] = cuda_call_make("kv_write", cuda_blocks(shape->rows, 1), cuda_blocks(warps, BLOCK_WARPS),
                              BLOCK_WARPS * WARP, &params, sizeof params);
    return 1;
}

const struct kernel cuda_kv_write_rows[] = {
    { .name = "kv_write_cuda", .device = DEVICE_CUDA, .op = OP_KV_WRITE, .priority = 1, .load = KERNEL_ANY,
      .architectures = cuda_architectures, .k = CUDA_ALL_KV, .v = CUDA_ALL_KV, .head_dim_max = HEAD_DIM_MAX,
      .absorbs = KERNEL_ABSORBS_ROPE, .describe = describe_kv_write },
};
const int cuda_kv_write_count = sizeof cuda_kv_write_rows / sizeof *cuda_kv_write_rows;
