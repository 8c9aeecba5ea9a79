// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/experts.c: which kernels do route, experts and combine, and on how large a grid.
#include "kernel/cuda/experts.h"

#include <assert.h>

#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, THREADS = 256, ORDER_THREADS = 1024, RUN_EACH = 8, PIECE = 8 };
enum { ANY_WARPS = 8, ANY_PAIRS = 512, TILES_MAX = 65535 /* of a grid's y */ };

static struct cuda_routes routes_of(const struct routes *routes)
{
    return (struct cuda_routes){ routes->expert, routes->share,   routes->first,
                                 routes->pair,   routes->experts, routes->chosen };
}

// ---- route and combine ----

static int describe_route(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                          struct cuda_call *calls)
{
    const struct route_args *args = arguments;
    const struct cuda_route params = { .rows = args->rows,
                                       .logits = args->logits,
                                       .bias = args->bias,
                                       .routes = routes_of(&args->routes),
                                       .score = args->score,
                                       .groups = args->groups,
                                       .groups_chosen = args->groups_chosen,
                                       .group_best = args->group_best,
                                       .normalise = args->normalise,
                                       .scale = args->scale };
    unsigned blocks = cuda_blocks(shape->rows, ROUTE_WARPS);
    calls[0] = cuda_call_make("route", blocks, 1, ROUTE_WARPS * WARP, &params, sizeof params);
    calls[1] = cuda_call_make("route_order", 1, 1, ORDER_THREADS, &params, sizeof params);
    return blocks == 1 ? 1 : 2;
}

static int describe_combine(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                            struct cuda_call *calls)
{
    const struct combine_args *args = arguments;
    const struct cuda_combine params = { .rows = args->rows,
                                         .x = (const uint16_t *)(const void *)args->x,
                                         .out = args->out,
                                         .share = args->routes.share,
                                         .chosen = args->routes.chosen,
                                         .width = args->width,
                                         .f32_out = args->f32_out };
    calls[0] = cuda_call_make("combine", cuda_blocks(shape->rows, 1), cuda_blocks(args->width, THREADS * RUN_EACH),
                              THREADS, &params, sizeof params);
    return 1;
}

// ---- experts ----

// The kernels of a packed kind, or of floats.
struct functions {
    const char *decode, *prefill, *any; // any: none of the others can read it
    int record_bytes;
};

static const struct functions packed_functions[LINEAR_KIND_COUNT] = {
#define X(kind, bits, block, floats, small, min)                              \
    [LINEAR_##kind] = { "experts_skinny_" #kind, "experts_wide_" #kind, NULL, \
                        LINEAR_RECORD_BYTES(bits, block, small, min) },
    LINEAR_KINDS(X)
#undef X
};

static struct functions functions_of(const struct weight *weight)
{
    enum linear_kind kind = linear_kind_of(weight->dtype);
    if (kind != LINEAR_KIND_COUNT)
        return packed_functions[kind];
    if (weight->dtype == DTYPE_F32)
        return (struct functions){ .any = "experts_any_f32" };
    bool half = weight->dtype == DTYPE_F16;
    if (weight->cols % PIECE)
        return (struct functions){ .any = half ? "experts_any_f16" : "experts_any_bf16" };
    return (struct functions){ half ? "experts_skinny_f16" : "experts_skinny_bf16",
                               half ? "experts_wide_f16" : "experts_wide_bf16", NULL, EXPERTS_FLOAT_BYTES };
}

static struct cuda_experts_output output_of(const struct experts_output *output)
{
    const struct weight *weight = &output->weight;
    return (struct cuda_experts_output){ .weight = weight->data,
                                         .bytes = linear_packing.bytes(weight->dtype, weight->rows, weight->cols),
                                         .scales = output->scales,
                                         .bias = output->bias,
                                         .y = (uint16_t *)(void *)output->y,
                                         .rows = weight->rows,
                                         .scale = weight->scale };
}

// The most tiles of `each` pairs that so many pairs can make: none of them is empty, and of each expert's one is not
// full.
static unsigned tiles_of(const struct routes *routes, int rows, int each)
{
    int pairs = rows * routes->chosen, used = routes->experts < pairs ? routes->experts : pairs;
    return (unsigned)(used + pairs / each);
}

static struct cuda_call describe_alike(const struct cuda_experts *p, const struct routes *routes,
                                       const struct functions *functions, int rows, bool few)
{
    int each = functions->any ? ANY_WARPS : few ? LINEAR_ROWS : EXPERTS_WIDE_WARPS * EXPERTS_WIDE_GROUPS * LINEAR_ROWS;
    unsigned blocks = 0, pairs = (unsigned)(rows * routes->chosen);
    for (int i = 0; i < p->outputs; i++)
        blocks += cuda_blocks(p->output[i].rows, each);
    if (functions->any)
        return cuda_call_make(functions->any, blocks, pairs < ANY_PAIRS ? pairs : ANY_PAIRS, ANY_WARPS * WARP, p,
                              sizeof *p);
    unsigned tiles = tiles_of(routes, rows, few ? EXPERTS_SKINNY_PAIRS : EXPERTS_WIDE_PAIRS);
    assert(tiles <= TILES_MAX);
    struct cuda_call call = cuda_call_make(few ? functions->decode : functions->prefill, blocks, tiles,
                                           (few ? EXPERTS_SKINNY_WARPS : EXPERTS_WIDE_WARPS) * WARP, p, sizeof *p);
    call.shared_bytes = (unsigned)(few ? experts_skinny_bytes : experts_wide_bytes)(functions->record_bytes);
    return call;
}

// Matrices that are alike go into one launch.
static int describe_experts(const struct experts_args *args, const struct cuda_shape *shape, bool few,
                            struct cuda_call *calls)
{
    struct cuda_experts p = { .rows = args->rows,
                              .x = (const uint16_t *)(const void *)args->x,
                              .routes = routes_of(&args->routes),
                              .in = args->in,
                              .x_per_slot = args->x_per_slot };
    int count = 0;
    for (int i = 0; i < args->outputs; i++) {
        struct functions functions = functions_of(&args->output[i].weight);
        p.output[p.outputs++] = output_of(&args->output[i]);
        bool next_alike = i + 1 < args->outputs && functions_of(&args->output[i + 1].weight).decode == functions.decode
            && functions_of(&args->output[i + 1].weight).any == functions.any;
        if (next_alike)
            continue;
        calls[count++] = describe_alike(&p, &args->routes, &functions, shape->rows, few);
        p.outputs = 0;
    }
    return count;
}

static int describe_skinny(const struct kernel *kernel, const void *args, const struct cuda_shape *shape,
                           struct cuda_call *calls)
{
    return describe_experts(args, shape, true, calls);
}

static int describe_wide(const struct kernel *kernel, const void *args, const struct cuda_shape *shape,
                         struct cuda_call *calls)
{
    return describe_experts(args, shape, false, calls);
}

// ---- rows ----

enum {
    SHARED_BYTES = 2
        * (EXPERTS_WIDE_WARPS * EXPERTS_WIDE_GROUPS * EXPERTS_FLOAT_BYTES + EXPERTS_WIDE_PAIRS * LINEAR_RECORD * 2)
    + EXPERTS_WIDE_PAIRS * 4
};

#define FLOATS (DTYPE_BIT(BF16) | DTYPE_BIT(F16) | DTYPE_BIT(F32))
#define BIT(id, kind) | DTYPE_BIT(id)
#define PACKED (0 LINEAR_FORMATS(BIT))
#define EXPERTS                                                                                            \
    .device = DEVICE_CUDA, .op = OP_EXPERTS, .architectures = cuda_all_architectures, .tolerance = 0.015f, \
    .shared_bytes = SHARED_BYTES
#define SKINNY .load = KERNEL_DECODE, .describe = describe_skinny
#define WIDE .load = KERNEL_PREFILL, .describe = describe_wide

const struct kernel cuda_experts_rows[] = {
    { .name = "route_cuda",
      .device = DEVICE_CUDA,
      .op = OP_ROUTE,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_route },
    { .name = "combine_cuda",
      .device = DEVICE_CUDA,
      .op = OP_COMBINE,
      .priority = 1,
      .load = KERNEL_ANY,
      .architectures = cuda_all_architectures,
      .describe = describe_combine },
    { .name = "experts_cuda_float_skinny", EXPERTS, SKINNY, .priority = 20, .weights = FLOATS },
    { .name = "experts_cuda_float_wide", EXPERTS, WIDE, .priority = 20, .weights = FLOATS },
    { .name = "experts_cuda_skinny",
      EXPERTS,
      SKINNY,
      .priority = 10,
      .weights = FLOATS | PACKED,
      .dequantised = PACKED,
      .packing = &linear_packing },
    { .name = "experts_cuda_wide",
      EXPERTS,
      WIDE,
      .priority = 10,
      .weights = FLOATS | PACKED,
      .dequantised = PACKED,
      .packing = &linear_packing },
};
const int cuda_experts_count = sizeof cuda_experts_rows / sizeof *cuda_experts_rows;
