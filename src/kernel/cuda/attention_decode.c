// SPDX-License-Identifier: Apache-2.0
#include "kernel/cuda/attention_decode.h"

#include <assert.h>

#include "kernel/cuda/attention_shapes.h"
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"

enum { WARP = 32 };

// How the bytes of a cache format are dequantised; -1: by none of the tensor-core kernels.
static int form_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F16: return FORM_F16;
    case DTYPE_BF16: return FORM_BF16;
    case DTYPE_FP8_E4M3:
    case DTYPE_FP8_TOKEN: return FORM_E4M3;
    case DTYPE_FP8_E5M2: return FORM_E5M2;
    case DTYPE_INT8_TOKEN: return FORM_INT8;
    case DTYPE_INT4_TOKEN: return FORM_INT4;
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6: return FORM_NVFP4;
    default: return -1;
    }
}

struct decode_kernel {
    const char *function;
    int k, v, dim;
    int warps, stages, pages, blocks, log_parts, log_each;
};

#define X(name, K, V, DIM, ...) { "attention_decode_" #name "_" #DIM, FORM_##K, FORM_##V, DIM, __VA_ARGS__ },
static const struct decode_kernel kernels[] = { DECODE_KERNELS(X) }, lone_kernels[] = { DECODE_LONE_KERNELS(X) };
#undef X

static const struct decode_kernel plain = {
    .function = "attention_decode_plain", .warps = 4, .blocks = 2, .log_parts = 5
};

static bool suits(const struct decode_kernel *kernel, const struct kv_layout *layout)
{
    return kernel->k == form_of(layout->k.dtype) && kernel->v == form_of(layout->v.dtype)
        && kernel->dim == layout->k.dim && kernel->dim == layout->v.dim;
}

// `none`, where there is none among so many.
static const struct decode_kernel *find_kernel(const struct decode_kernel *among, size_t count,
                                               const struct kv_layout *layout, const struct decode_kernel *none)
{
    for (size_t i = 0; i < count; i++)
        if (suits(&among[i], layout))
            return &among[i];
    return none;
}

static int warps_of(const struct decode_kernel *kernel, int sm)
{
    return DECODE_WARPS(kernel->warps, kernel->blocks, sm);
}

// Bytes in a stage for the scales of one token: fp8 may have one of its own.
static size_t scale_room(int form, int dim)
{
    return form == FORM_NVFP4 ? (size_t)dim / 16 : form == FORM_E4M3 || form == FORM_INT8 || form == FORM_INT4 ? 4 : 0;
}

// Dynamic shared memory without the list of work: as walk::SHARED_BYTES of attention_feed.cuh.
static size_t shared_bytes_of(const struct decode_kernel *kernel, const struct kv_layout *layout, int sm)
{
    if (kernel == &plain)
        return 0;
    size_t token = layout->k.data_bytes + layout->v.data_bytes + scale_room(kernel->k, kernel->dim)
        + scale_room(kernel->v, kernel->dim);
    size_t fetched = (size_t)kernel->pages * KV_PAGE_TOKENS * token;
    size_t result = ((size_t)kernel->dim * WARP + 2 * SPLIT_COLUMNS * sizeof(float) + 127) / 128 * 128;
    return (size_t)(warps_of(kernel, sm) * DECODE_STAGES(kernel->stages, sm)) * (fetched > result ? fetched : result);
}

// The most chunks of a sequence within a context of this length, wherever what it sees begins.
static int chunks_most(const struct decode_kernel *kernel, int context, int log_warps)
{
    int log_parts = split_log_parts(context / SPLIT_TOKENS + 1, 1, log_warps, kernel->log_parts);
    return log_parts == log_warps ? 1 : 1 << (log_parts < SPLIT_LOG_RESULTS ? log_parts : SPLIT_LOG_RESULTS);
}

// The most pieces of work.
static int64_t pieces_most(const struct attention_args *args, const struct cuda_shape *shape, int rows, int chunks)
{
    const struct kv_layout *layout = &args->cache.layout;
    int tiles = (rows * args->group + SPLIT_COLUMNS - 1) / SPLIT_COLUMNS;
    return (int64_t)shape->sequences * layout->k.heads * tiles * chunks;
}

// As many blocks as there may be pieces of work, or as the device holds.
static unsigned blocks_of(const struct decode_kernel *kernel, const struct cuda_shape *shape, int64_t pieces)
{
    int64_t most = (int64_t)shape->multiprocessors * kernel->blocks;
    return cuda_blocks(pieces < most ? pieces : most, 1);
}

static struct cuda_call decode_call(const struct decode_kernel *kernel, const struct attention_args *args,
                                    const struct cuda_shape *shape, const struct cuda_attention *params)
{
    struct cuda_call call = cuda_call_make(kernel->function, (unsigned)params->blocks, 1, WARP << params->log_warps,
                                           params, sizeof *params);
    // Blocks are put side by side as long as there is room, even while other multiprocessors are idle: so there is room
    // for their share alone.
    size_t shared = shared_bytes_of(kernel, &args->cache.layout, cuda_code_sm(shape->sm))
        + (size_t)shape->sequences * SPLIT_WORK_BYTES;
    size_t alone = (size_t)shape->shared_bytes / (size_t)(params->share + 1) + 1;
    call.shared_bytes = (unsigned)(shared > alone ? shared : alone);
    return call;
}

// Block (pairs of a sequence and a head, row of a sequence): where there are many, no more blocks than can begin beside
// those of the kernel before, so that the one behind can begin, too. A warp has a pair for each lane at most.
static struct cuda_call merge_call(const struct attention_args *args, const struct cuda_shape *shape, int rows,
                                   const struct cuda_attention *params)
{
    bool rotated = args->cache.layout.v.dtype == DTYPE_INT4_TOKEN, few = shape->sequences <= SPLIT_MERGE_FEW;
    unsigned warps = rotated || few ? 1 : SPLIT_MERGE_WARPS, each = rotated ? SPLIT_MERGE_ROTATED : 1;
    int64_t pairs = (int64_t)shape->sequences * args->heads;
    unsigned all = cuda_blocks(pairs, warps), least = cuda_blocks(pairs, WARP * warps);
    unsigned most = cuda_blocks(shape->multiprocessors, rows) * each, blocks = few || all < most ? all : most;
    struct cuda_call call = cuda_call_make("attention_decode_merge", blocks > least ? blocks : least, (unsigned)rows,
                                           warps * WARP, params, sizeof *params);
    call.shared_bytes = rotated ? (unsigned)args->cache.layout.v.dim * sizeof(float) : 0;
    return call;
}

int attention_decode_calls(const struct attention_args *args, const struct cuda_shape *shape, int rows_max,
                           struct cuda_call *calls)
{
    const struct kv_layout *layout = &args->cache.layout;
    const struct decode_kernel *kernel = find_kernel(kernels, sizeof kernels / sizeof *kernels, layout, &plain);
    const struct decode_kernel *lone = find_kernel(lone_kernels, sizeof lone_kernels / sizeof *lone_kernels, layout,
                                                   NULL);
    int sm = cuda_code_sm(shape->sm), rows = shape->rows_each < rows_max ? shape->rows_each : rows_max;
    int log_warps = __builtin_ctz((unsigned)warps_of(kernel, sm));
    int chunks = chunks_most(kernel, shape->context, log_warps);
    int64_t pieces = pieces_most(args, shape, rows, chunks);
    assert(rows_max <= DECODE_ROWS_MAX);
    if (lone && DECODE_LARGE(sm) && pieces <= shape->multiprocessors)
        kernel = lone;
    struct cuda_attention params = {
        .batch = *args->batch->on_device,
        .cache = cuda_place_make(&args->cache),
        .sink = cuda_place_make(&args->sink),
        .sink_pages = args->sink_pages,
        .q = (const uint16_t *)(const void *)args->q,
        .out = (uint16_t *)(void *)args->out,
        .sinks = args->sinks,
        .partials = args->scratch,
        .sequences = shape->sequences,
        .blocks = (int32_t)blocks_of(kernel, shape, pieces),
        .log_warps = log_warps,
        .log_parts = kernel->log_parts,
        .log_each_most = kernel->log_each,
        .heads = args->heads,
        .window = args->window,
        .rows_min = 1,
        .rows_max = rows_max,
        .group = args->group,
        .lead = args->lead,
        .scale = args->scale,
        .softcap = args->softcap,
    };
    params.share = (int32_t)cuda_blocks(params.blocks, shape->multiprocessors);
    calls[0] = decode_call(kernel, args, shape, &params);
    if (chunks == 1 && layout->v.dtype != DTYPE_INT4_TOKEN)
        return 1; // nothing is ever in chunks
    calls[1] = merge_call(args, shape, rows, &params);
    return 2;
}

// Merging reads as many results as there may be: that reaches no further than this.
size_t attention_decode_scratch(const struct kernel_extent *extent)
{
    size_t results = (size_t)extent->sequences * (size_t)extent->heads << SPLIT_LOG_RESULTS;
    return results * (size_t)(extent->width / extent->heads + SPLIT_TAIL) * sizeof(float);
}
