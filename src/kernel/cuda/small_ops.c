// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/small_ops.c: the rows of the ops of elementwise.cu. The size of a block depends only on the width of a
// row, so that sums have the same order in every step.
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
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1),
                              cuda_blocks(params.width, THREADS * RUN_EACH), THREADS, &params, sizeof params);
    return 1;
}

// The threads that normalise one group: the fewest lanes of a warp that hold it, or a block whose threads hold `held`
// runs each.
static int norm_group_threads(int width, int held)
{
    int group_threads = 1;
    if (width <= WARP * NORM_EACH) {
        while (group_threads * NORM_EACH < width)
            group_threads *= 2;
        return group_threads;
    }
    group_threads = WARP * (int)cuda_blocks(width, WARP * NORM_EACH * held);
    return group_threads < BLOCK_MAX ? group_threads : BLOCK_MAX;
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
                                      .group_threads = norm_group_threads(args->width, args->f32_x ? 2 : 1),
                                      .epsilon = args->epsilon };
    int block = params.group_threads <= WARP ? THREADS : params.group_threads;
    calls[0] = cuda_call_make(kernel->functions[0],
                              cuda_blocks((int64_t)shape->rows * args->groups, block / params.group_threads), 1,
                              (unsigned)block, &params, sizeof params);
    return 1;
}

static int describe_rope(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct rope_args *args = arguments;
    const struct cuda_rope_rows params = { .batch = *args->batch->on_device, .rope = cuda_rope_make(args) };
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1), 1, THREADS, &params, sizeof params);
    return 1;
}

// A launch over all (rows, width) values.
static int describe_flat(const struct kernel *kernel, const struct cuda_shape *shape, int width, const void *params,
                         size_t bytes, struct cuda_call *calls)
{
    unsigned blocks = cuda_blocks((int64_t)shape->rows * width, THREADS * FLAT_EACH);
    calls[0] = cuda_call_make(kernel->functions[0], blocks, 1, THREADS, params, bytes);
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
    return describe_flat(kernel, shape, args->width, &params, sizeof params, calls);
}

static int describe_add(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                        struct cuda_call *calls)
{
    const struct add_args *args = arguments;
    const struct cuda_add params = {
        .rows = args->rows, .x = args->x, .y = (const uint16_t *)(const void *)args->y, .width = args->width
    };
    return describe_flat(kernel, shape, args->width, &params, sizeof params, calls);
}

static int describe_softcap(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                            struct cuda_call *calls)
{
    const struct softcap_args *args = arguments;
    const struct cuda_softcap params = { .rows = args->rows, .x = args->x, .width = args->width, .cap = args->cap };
    return describe_flat(kernel, shape, args->width, &params, sizeof params, calls);
}

static int describe_copy(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct copy_args *args = arguments;
    const struct cuda_copy params = {
        .rows = args->rows, .x = args->x, .out = (uint16_t *)(void *)args->out, .width = args->width
    };
    return describe_flat(kernel, shape, args->width, &params, sizeof params, calls);
}

static int describe_all_reduce(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                               struct cuda_call *calls)
{
    const struct all_reduce_args *args = arguments;
    const struct cuda_all_reduce params = { .rows = args->rows,
                                            .parts = args->parts,
                                            .out = args->out,
                                            .stride = args->stride,
                                            .ranks = args->ranks,
                                            .width = args->width,
                                            .adds = args->adds,
                                            .f32_out = args->f32_out };
    return describe_flat(kernel, shape, args->width, &params, sizeof params, calls);
}

static int describe_all_gather(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                               struct cuda_call *calls)
{
    const struct all_gather_args *args = arguments;
    const struct cuda_all_gather params = { .rows = args->rows,
                                            .parts = args->parts,
                                            .out = args->out,
                                            .stride = args->stride,
                                            .ranks = args->ranks,
                                            .width = args->width,
                                            .unit = ALL_GATHER_UNIT };
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1), (unsigned)args->ranks, THREADS,
                              &params, sizeof params);
    return 1;
}

static int describe_pick(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    const struct pick_args *args = arguments;
    const struct cuda_pick params = {
        .batch = *args->batch->on_device, .x = args->x, .out = args->out, .width = args->width
    };
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1),
                              cuda_blocks(args->width, THREADS * RUN_EACH), THREADS, &params, sizeof params);
    return 1;
}

#define ROW(word, id, writer)                                                                      \
    .name = word, .functions = { word }, .device = DEVICE_CUDA, .op = OP_##id, .load = KERNEL_ANY, \
    .architectures = cuda_all_architectures, .describe = describe_##writer

const struct kernel cuda_small_rows[] = {
    { ROW("embed", EMBED, embed), .priority = 1, .weights = CUDA_ALL_W },
    { ROW("norm_f32", NORM, norm), .priority = 1, .x = DTYPE_BIT(F32) },
    { ROW("norm_bf16", NORM, norm), .priority = 1, .x = DTYPE_BIT(BF16) },
    { ROW("rope", ROPE, rope), .priority = 2, .rotary_first = true, .head_dim_max = HEAD_DIM_MAX },
    { ROW("rope_latent", ROPE, rope), .priority = 1 },
    { ROW("act_mul", ACT_MUL, act_mul), .priority = 1 },
    { ROW("add", ADD, add), .priority = 1 },
    { ROW("copy", COPY, copy), .priority = 1 },
    { ROW("pick", PICK, pick), .priority = 1 },
    { ROW("softcap", SOFTCAP, softcap), .priority = 1 },
    { ROW("all_reduce", ALL_REDUCE, all_reduce), .priority = 1 },
    { ROW("all_gather", ALL_GATHER, all_gather), .priority = 1 },
};
const int cuda_small_count = sizeof cuda_small_rows / sizeof *cuda_small_rows;
