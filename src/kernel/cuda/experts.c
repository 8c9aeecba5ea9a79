// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/experts.c: the rows of experts (experts.cu): the grouped form of linear, one GEMM per expert over the
// pairs that the router gave it. Weights are those of linear: the same kinds, formats and packing.
#include "kernel/cuda/experts.h"

#include <assert.h>

#include "kernel/cuda/linear_rows.h"

enum { ANY_WARPS = 8, ANY_PAIRS = 512, TILES_MAX = 65535 /* of a grid's y */ };

struct cuda_routes cuda_routes_make(const struct routes *routes)
{
    return (struct cuda_routes){ routes->expert, routes->weight,  routes->first,
                                 routes->pair,   routes->experts, routes->top_k };
}

// ---- parameters ----

static uint64_t expert_bytes(const struct kernel *kernel, const struct weight *weight)
{
    return kernel->packing ? kernel->packing->bytes(weight->dtype, weight->rows, weight->cols)
                           : dtype_bytes(weight->dtype, (size_t)weight->rows * (size_t)weight->cols);
}

static struct cuda_experts params_of(const struct kernel *kernel, const struct experts_args *args)
{
    struct cuda_experts p = { .rows = args->rows,
                              .x = (const uint16_t *)(const void *)args->x,
                              .routes = cuda_routes_make(&args->routes),
                              .in = args->in,
                              .x_per_slot = args->x_per_slot,
                              .outputs = args->outputs };
    for (int i = 0; i < args->outputs; i++) {
        const struct experts_output *output = &args->output[i];
        const struct weight *weight = &output->weight;
        p.output[i] = (struct cuda_experts_output){ .weight = weight->data,
                                                    .bytes = expert_bytes(kernel, weight),
                                                    .scales = output->scales,
                                                    .bias = output->bias,
                                                    .y = (uint16_t *)(void *)output->y,
                                                    .rows = weight->rows,
                                                    .scale = weight->scale };
    }
    return p;
}

static unsigned row_tiles(const struct cuda_experts *p, int tile_rows)
{
    unsigned tiles = 0;
    for (int i = 0; i < p->outputs; i++)
        tiles += cuda_blocks(p->output[i].rows, tile_rows);
    return tiles;
}

// ---- tiles ----

struct experts_variant {
    int tile_rows, tile_pairs, warps;
    int record_bytes;
    int (*shared_bytes)(int record_bytes);
};

// The most tiles of `each` pairs that so many pairs can make: none of them is empty, and one of each expert's is not
// full.
static unsigned pair_tiles(const struct routes *routes, int rows, int each)
{
    int pairs = rows * routes->top_k, used = routes->experts < pairs ? routes->experts : pairs;
    return (unsigned)(used + pairs / each);
}

static int describe_tiles(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                          struct cuda_call *calls)
{
    const struct experts_args *args = arguments;
    const struct experts_variant *variant = kernel->variant;
    struct cuda_experts p = params_of(kernel, args);
    unsigned tiles = pair_tiles(&args->routes, shape->rows, variant->tile_pairs);
    assert(tiles <= TILES_MAX);
    calls[0] = cuda_call_make(kernel->functions[0], row_tiles(&p, variant->tile_rows), tiles,
                              (unsigned)(variant->warps * LINEAR_WARP), &p, sizeof p);
    calls[0].shared_bytes = (unsigned)variant->shared_bytes(variant->record_bytes);
    return 1;
}

// ---- experts_any_*: every shape, slowly ----

static int describe_any(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                        struct cuda_call *calls)
{
    const struct experts_args *args = arguments;
    struct cuda_experts p = params_of(kernel, args);
    unsigned pairs = (unsigned)(shape->rows * args->routes.top_k);
    calls[0] = cuda_call_make(kernel->functions[0], row_tiles(&p, ANY_WARPS), pairs < ANY_PAIRS ? pairs : ANY_PAIRS,
                              ANY_WARPS * LINEAR_WARP, &p, sizeof p);
    return 1;
}

// ---- rows ----

enum {
    WIDE_SHARED_BYTES = 2
        * (EXPERTS_WIDE_WARPS * EXPERTS_WIDE_GROUPS * EXPERTS_FLOAT_BYTES + EXPERTS_WIDE_PAIRS * LINEAR_RECORD * 2)
    + EXPERTS_WIDE_PAIRS * 4
};

#define SKINNY_TILES(bytes)                                              \
    &(const struct experts_variant){ .tile_rows = LINEAR_ROWS,           \
                                     .tile_pairs = EXPERTS_SKINNY_PAIRS, \
                                     .warps = EXPERTS_SKINNY_WARPS,      \
                                     .record_bytes = bytes,              \
                                     .shared_bytes = experts_skinny_bytes }
#define WIDE_TILES(bytes)                                                                                 \
    &(const struct experts_variant){ .tile_rows = EXPERTS_WIDE_WARPS * EXPERTS_WIDE_GROUPS * LINEAR_ROWS, \
                                     .tile_pairs = EXPERTS_WIDE_PAIRS,                                    \
                                     .warps = EXPERTS_WIDE_WARPS,                                         \
                                     .record_bytes = bytes,                                               \
                                     .shared_bytes = experts_wide_bytes }

#define EXPERTS(word)                                                                                  \
    .name = word, .functions = { word }, .device = DEVICE_CUDA, .op = OP_EXPERTS, .tolerance = 0.015f, \
    .architectures = cuda_all_architectures
// clang-format off
#define SKINNY(word, bytes)                                                                    \
    EXPERTS("experts_skinny_" word), .load = KERNEL_DECODE, .priority = 10,                    \
    .describe = describe_tiles, .variant = SKINNY_TILES(bytes)
#define WIDE(word, bytes)                                                                      \
    EXPERTS("experts_wide_" word), .load = KERNEL_PREFILL, .priority = 10,                     \
    .describe = describe_tiles, .variant = WIDE_TILES(bytes), .shared_bytes = WIDE_SHARED_BYTES
#define ANY(word) EXPERTS("experts_any_" word), .load = KERNEL_ANY, .priority = 1, .describe = describe_any
#define FLOATS(id) .weights = DTYPE_BIT(id), .cols_multiple = LINEAR_FLOAT_COLUMNS

const struct kernel cuda_experts_rows[] = {
    { SKINNY("bf16", EXPERTS_FLOAT_BYTES), FLOATS(BF16) },
    { SKINNY("f16", EXPERTS_FLOAT_BYTES), FLOATS(F16) },
    { WIDE("bf16", EXPERTS_FLOAT_BYTES), FLOATS(BF16) },
    { WIDE("f16", EXPERTS_FLOAT_BYTES), FLOATS(F16) },
#define X(kind, bits, block, floats, small, min)                                                  \
    { SKINNY(#kind, LINEAR_RECORD_BYTES(bits, block, small, min)), LINEAR_PACKED_ROW(kind) },     \
    { WIDE(#kind, LINEAR_RECORD_BYTES(bits, block, small, min)), LINEAR_PACKED_ROW(kind) },
    LINEAR_KINDS(X)
#undef X
    { ANY("bf16"), .weights = DTYPE_BIT(BF16), .slow = LINEAR_SLOW_COLUMNS },
    { ANY("f16"), .weights = DTYPE_BIT(F16), .slow = LINEAR_SLOW_COLUMNS },
    { ANY("f32"), .weights = DTYPE_BIT(F32), .slow = LINEAR_SLOW_F32 },
};
// clang-format on
const int cuda_experts_count = sizeof cuda_experts_rows / sizeof *cuda_experts_rows;
