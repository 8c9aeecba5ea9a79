// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_write.c: the rows of kv_write.cu: every cache format, any two of them together, and the transform of
// keys by itself.
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, SKINNY_ROWS = 64, BLOCK_WARPS = 4, TRANSFORM_LANE_VALUES = 16 };

// A kernel, by how many values of a vector a lane has. Few rows are done soonest where that is least, many where it is
// most; their bytes are the same.
struct form {
    int lane_values;
    const char *function;
};

static struct form form_for(int dim, int rows)
{
    static const struct form forms[] = { { 4, "kv_write_4" }, { 8, "kv_write_8" }, { 16, "kv_write_16" } };
    int i = rows <= SKINNY_ROWS ? 0 : 2;
    while (forms[i].lane_values * WARP < dim)
        i++;
    return forms[i];
}

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
    const struct form form = form_for(k_dim > v_dim ? k_dim : v_dim, shape->rows);
    int warps = warps_for(queries, k_dim, form.lane_values) + warps_for(heads, k_dim, form.lane_values)
        + warps_for(heads, v_dim, form.lane_values);
    int block_warps = shape->rows <= KERNEL_DECODE_ROWS_MAX ? 1 : BLOCK_WARPS; // one to a multiprocessor, if it can be
    calls[0] = cuda_call_make(form.function, cuda_blocks(shape->rows, 1), cuda_blocks(warps, block_warps),
                              (unsigned)(block_warps * WARP), &params, sizeof params);
    return 1;
}

static int describe_transform(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                              struct cuda_call *calls)
{
    const struct transform_args *args = arguments;
    const struct cuda_transform_rows params = { .rows = args->rows, .transform = cuda_transform_make(args) };
    int warps = warps_for(args->heads, args->head_dim, TRANSFORM_LANE_VALUES)
        + warps_for(args->kv_heads, args->head_dim, TRANSFORM_LANE_VALUES);
    calls[0] = cuda_call_make("transform", cuda_blocks(shape->rows, 1), cuda_blocks(warps, BLOCK_WARPS),
                              BLOCK_WARPS * WARP, &params, sizeof params);
    return 1;
}

const struct kernel cuda_kv_write_rows[] = {
    { .name = "kv_write_cuda",
      .device = DEVICE_CUDA,
      .op = OP_KV_WRITE,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .k = CUDA_ALL_KV,
      .v = CUDA_ALL_KV,
      .sink = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16),
      .head_dim_max = HEAD_DIM_MAX,
      .fuses = KERNEL_FUSES_ROPE | KERNEL_FUSES_TRANSFORM,
      .describe = describe_kv_write },
    { .name = "transform_cuda",
      .device = DEVICE_CUDA,
      .op = OP_TRANSFORM,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .head_dim_max = HEAD_DIM_MAX,
      .describe = describe_transform },
};
const int cuda_kv_write_count = sizeof cuda_kv_write_rows / sizeof *cuda_kv_write_rows;
