// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/small_ops.c: the rows of the ops in elementwise.cu. A block's size is a function of a row's width alone:
// sums then have one order, whatever the step.
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, BLOCK_MAX = 1024, THREADS = 256, FLAT_EACH = 8, RUN_EACH = 4, NORM_EACH = 8 };

static int describe_embed(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                          struct cuda_call *calls)
{
    const struct embed_args *args = arguments;
    const struct cuda_embed params = { .batch = *args->batch->on_device,
                                       .table = args->table.data,
                                       .row_bytes = dtype_bytes(args->table.dtype, (size_t)args->table.cols),
                                       .out = args->out,
                                       .width = args->table.cols,
                                       .dtype = args->table.dtype,
                                       .first = args->first,
                                       .rows = args->table.rows,
                                       .scale = args->scale * args->table.scale };
    calls[0] = cuda_call_make("embed", cuda_blocks(shape->rows, 1), cuda_blocks(params.width, THREADS * RUN_EACH),
                              THREADS, &params, sizeof params);
    return 1;
}

// What a warp can hold at once is done by as few of its lanes as hold it; wider groups have a block each, whose threads
// hold so many runs.
static int norm_team(int width, int held)
{
    int team = 1;
    if (width <= WARP * NORM_EACH) {
        while (team * NORM_EACH < width)
            team *= 2;
        return team;
    }
    team = WARP * (int)cuda_blocks(width, WARP * NORM_EACH * held);
    return team < BLOCK_MAX ? team : BLOCK_MAX;
}

static int describe_norm(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct norm_args *args = arguments;
    const struct cuda_norm params = { .rows = args->rows,
                                      .x = args->x,
                                      .out = (uint16_t *)(void *)args->out,
                                      .weight = args->weight,
                                      .own_weights = args->own_weights,
                                      .groups = args->groups,
                                      .width = args->width,
                                      .gap = args->gap,
                                      .team = norm_team(args->width, args->f32_x ? 2 : 1),
                                      .epsilon = args->epsilon };
    int block = params.team <= WARP ? THREADS : params.team;
    calls[0] = cuda_call_make(args->f32_x ? "norm_f32" : "norm_bf16",
                              cuda_blocks((int64_t)shape->rows * args->groups, block / params.team), 1, (unsigned)block,
                              &params, sizeof params);
    return 1;
}

static int describe_rope(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct rope_args *args = arguments;
    const struct cuda_turn params = { .batch = *args->batch->on_device, .rope = cuda_rope_make(args) };
    const char *function = args->first || args->head_dim > HEAD_DIM_MAX ? "rope_within" : "rope";
    calls[0] = cuda_call_make(function, cuda_blocks(shape->rows, 1), 1, THREADS, &params, sizeof params);
    return 1;
}

// A launch over (rows, width) values in a row.
static int describe_flat(const char *function, const struct cuda_shape *shape, int width, const void *params,
                         size_t bytes, struct cuda_call *calls)
{
    unsigned blocks = cuda_blocks((int64_t)shape->rows * width, THREADS * FLAT_EACH);
    calls[0] = cuda_call_make(function, blocks, 1, THREADS, params, bytes);
    return 1;
}

static int describe_act_mul(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                            struct cuda_call *calls)
{
    const struct act_mul_args *args = arguments;
    const struct cuda_act_mul params = { .rows = args->rows,
                                         .gate = (const uint16_t *)(const void *)args->gate,
                                         .up = (const uint16_t *)(const void *)args->up,
                                         .out = (uint16_t *)(void *)args->out,
                                         .width = args->width,
                                         .act = args->act,
                                         .gate_per_row = args->gate_per_row };
    return describe_flat("act_mul", shape, args->width, &params, sizeof params, calls);
}

static int describe_add(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                        struct cuda_call *calls)
{
    const struct add_args *args = arguments;
    const struct cuda_add params = {
        .rows = args->rows, .x = args->x, .y = (const uint16_t *)(const void *)args->y, .width = args->width
    };
    return describe_flat("add", shape, args->width, &params, sizeof params, calls);
}

static int describe_softcap(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                            struct cuda_call *calls)
{
    const struct softcap_args *args = arguments;
    const struct cuda_softcap params = { .rows = args->rows, .x = args->x, .width = args->width, .cap = args->cap };
    return describe_flat("softcap", shape, args->width, &params, sizeof params, calls);
}

static int describe_copy(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct copy_args *args = arguments;
    const struct cuda_copy params = {
        .rows = args->rows, .x = args->x, .out = (uint16_t *)(void *)args->out, .width = args->width
    };
    return describe_flat("copy", shape, args->width, &params, sizeof params, calls);
}

static int describe_all_reduce(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                               struct cuda_call *calls)
{
    const struct all_reduce_args *args = arguments;
    const struct cuda_reduce params = { .rows = args->rows,
                                        .parts = args->parts,
                                        .out = args->out,
                                        .stride = args->stride,
                                        .ranks = args->ranks,
                                        .width = args->width,
                                        .adds = args->adds,
                                        .f32_out = args->f32_out };
    return describe_flat("reduce", shape, args->width, &params, sizeof params, calls);
}

static int describe_all_gather(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                               struct cuda_call *calls)
{
    const struct all_gather_args *args = arguments;
    const struct cuda_join params = { .rows = args->rows,
                                      .parts = args->parts,
                                      .out = args->out,
                                      .stride = args->stride,
                                      .ranks = args->ranks,
                                      .width = args->width,
                                      .unit = JOIN_UNIT };
    calls[0] = cuda_call_make("join", cuda_blocks(shape->rows, 1), (unsigned)args->ranks, THREADS, &params,
                              sizeof params);
    return 1;
}

static int describe_pick(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct pick_args *args = arguments;
    const struct cuda_pick params = {
        .batch = *args->batch->on_device, .x = args->x, .out = args->out, .width = args->width
    };
    calls[0] = cuda_call_make("pick", cuda_blocks(shape->rows, 1), cuda_blocks(args->width, THREADS * RUN_EACH),
                              THREADS, &params, sizeof params);
    return 1;
}

const struct kernel cuda_small_rows[] = {
    { .name = "embed_cuda",
      .device = DEVICE_CUDA,
      .op = OP_EMBED,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .weights = CUDA_ALL_W,
      .describe = describe_embed },
    { .name = "norm_cuda",
      .device = DEVICE_CUDA,
      .op = OP_NORM,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_norm },
    { .name = "rope_cuda",
      .device = DEVICE_CUDA,
      .op = OP_ROPE,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .head_dim_max = HEAD_DIM_MAX,
      .describe = describe_rope },
    { .name = "act_mul_cuda",
      .device = DEVICE_CUDA,
      .op = OP_ACT_MUL,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_act_mul },
    { .name = "add_cuda",
      .device = DEVICE_CUDA,
      .op = OP_ADD,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_add },
    { .name = "copy_cuda",
      .device = DEVICE_CUDA,
      .op = OP_COPY,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_copy },
    { .name = "pick_cuda",
      .device = DEVICE_CUDA,
      .op = OP_PICK,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_pick },
    { .name = "softcap_cuda",
      .device = DEVICE_CUDA,
      .op = OP_SOFTCAP,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_softcap },
    { .name = "all_reduce_cuda",
      .device = DEVICE_CUDA,
      .op = OP_ALL_REDUCE,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_all_reduce },
    { .name = "all_gather_cuda",
      .device = DEVICE_CUDA,
      .op = OP_ALL_GATHER,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_all_gather },
};
const int cuda_small_count = sizeof cuda_small_rows / sizeof *cuda_small_rows;
