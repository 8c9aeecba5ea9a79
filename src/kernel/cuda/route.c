// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/route.c: the rows of what stands around a mixture of experts (route.cu): the router's top-k with the
// order of its pairs, and the weighted sum of the experts' results.
#include "kernel/cuda/describe.h"
#include "kernel/cuda/experts.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { ROUTE, ORDER }; // functions of the row of route
enum { WARP = 32, ORDER_THREADS = 1024, COMBINE_THREADS = 256, COMBINE_VALUES = 8 };

// One block does the order, too.
static int describe_route(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                          struct cuda_call *calls)
{
    const struct route_args *args = arguments;
    const struct cuda_route params = { .rows = args->rows,
                                       .logits = args->logits,
                                       .bias = args->bias,
                                       .routes = cuda_routes_make(&args->routes),
                                       .score = args->score,
                                       .groups = args->groups,
                                       .topk_group = args->topk_group,
                                       .group_best = args->group_best,
                                       .normalise = args->normalise,
                                       .scale = args->scale };
    unsigned blocks = cuda_blocks(shape->rows, ROUTE_WARPS);
    calls[0] = cuda_call_make(kernel->functions[ROUTE], blocks, 1, ROUTE_WARPS * WARP, &params, sizeof params);
    calls[1] = cuda_call_make(kernel->functions[ORDER], 1, 1, ORDER_THREADS, &params, sizeof params);
    return blocks == 1 ? 1 : 2;
}

static int describe_combine(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                            struct cuda_call *calls)
{
    const struct combine_args *args = arguments;
    const struct cuda_combine params = { .rows = args->rows,
                                         .x = (const uint16_t *)(const void *)args->x,
                                         .out = args->out,
                                         .weight = args->routes.weight,
                                         .top_k = args->routes.top_k,
                                         .width = args->width,
                                         .f32_out = args->f32_out };
    calls[0] = cuda_call_make(kernel->functions[0], cuda_blocks(shape->rows, 1),
                              cuda_blocks(args->width, COMBINE_THREADS * COMBINE_VALUES), COMBINE_THREADS, &params,
                              sizeof params);
    return 1;
}

const struct kernel cuda_route_rows[] = {
    { .name = "route_cuda",
      .device = DEVICE_CUDA,
      .op = OP_ROUTE,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_route,
      .functions = { "route", "route_order" } },
    { .name = "combine_cuda",
      .device = DEVICE_CUDA,
      .op = OP_COMBINE,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_combine,
      .functions = { "combine" } },
};
const int cuda_route_count = sizeof cuda_route_rows / sizeof *cuda_route_rows;
