// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_decode.c: the rows of split-KV decode attention (FlashDecoding, attention_decode.cu): one for
// each pair of cache formats and head size. They serve the sequences of a step with at most DECODE_ROWS_MAX rows; the
// others are prefill's (attention_prefill.c).
#include "kernel/cuda/attention_decode.h"

#include "kernel/cuda/attention_rows.h"
#include "kernel/cuda/attention_shapes.h"
#include "kernel/cuda/describe.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/rows.h"

enum { WARP = 32, PLAIN_WARPS = 4, PLAIN_CTAS = 2, PLAIN_LOG_SPLITS = 5 };

// The sizes of a kernel, as its line of attention_shapes.h has them. `stages` is 0 if it has no ring of stages.
struct decode_variant {
    int k, v; // FORM_*
    int warps, stages, pages, ctas, log_splits, log_each;
};

// ---- grids ----

static int warps_of(const struct decode_variant *variant, int sm)
{
    return DECODE_WARPS(variant->warps, variant->ctas, sm);
}

// Bytes in a stage for the scales of one token: fp8 may have one of its own.
static size_t scale_room(int form, int dim)
{
    return form == FORM_NVFP4 ? (size_t)dim / 16 : form == FORM_E4M3 || form == FORM_INT8 || form == FORM_INT4 ? 4 : 0;
}

// Dynamic shared memory without the work list: as walk::SHARED_BYTES of attention_feed.cuh.
static size_t ring_bytes(const struct decode_variant *variant, const struct kv_layout *layout, int sm)
{
    size_t dim = (size_t)layout->k.dim;
    size_t token = layout->k.data_bytes + layout->v.data_bytes + scale_room(variant->k, layout->k.dim)
        + scale_room(variant->v, layout->v.dim);
    size_t fetched = (size_t)variant->pages * KV_PAGE_TOKENS * token;
    size_t result = (dim * WARP + 2 * SPLIT_COLUMNS * sizeof(float) + 127) / 128 * 128;
    return (size_t)(warps_of(variant, sm) * DECODE_STAGES(variant->stages, sm)) * (fetched > result ? fetched : result);
}

static int rows_of(const struct cuda_shape *shape)
{
    return shape->rows_each < DECODE_ROWS_MAX ? shape->rows_each : DECODE_ROWS_MAX;
}

static int log_warps_of(const struct decode_variant *variant, const struct cuda_shape *shape)
{
    return __builtin_ctz((unsigned)warps_of(variant, cuda_code_sm(shape->sm)));
}

// The most chunks of a sequence within a context of this length, wherever what it sees begins.
static int chunks_max(const struct decode_variant *variant, const struct cuda_shape *shape)
{
    int log_warps = log_warps_of(variant, shape);
    int log_splits = split_log_splits(shape->context / SPLIT_TOKENS + 1, 1, log_warps, variant->log_splits);
    return log_splits == log_warps ? 1 : 1 << (log_splits < SPLIT_LOG_RESULTS ? log_splits : SPLIT_LOG_RESULTS);
}

static int64_t work_tiles_max(const struct decode_variant *variant, const struct attention_args *args,
                              const struct cuda_shape *shape)
{
    int tiles = (rows_of(shape) * args->group + SPLIT_COLUMNS - 1) / SPLIT_COLUMNS;
    return (int64_t)shape->sequences * args->cache.layout.k.heads * tiles * chunks_max(variant, shape);
}

// As many CTAs as there may be work tiles, or as the device holds.
static unsigned grid_of(const struct decode_variant *variant, const struct attention_args *args,
                        const struct cuda_shape *shape)
{
    int64_t tiles = work_tiles_max(variant, args, shape), most = (int64_t)shape->multiprocessors * variant->ctas;
    return cuda_blocks(tiles < most ? tiles : most, 1);
}

// ---- launches ----

static struct cuda_attention params_of(const struct decode_variant *variant, const struct attention_args *args,
                                       const struct cuda_shape *shape)
{
    struct cuda_attention params = attention_params(args);
    params.partials = args->scratch;
    params.sequences = shape->sequences;
    params.ctas = (int32_t)grid_of(variant, args, shape);
    params.ctas_per_sm = (int32_t)cuda_blocks(params.ctas, shape->multiprocessors);
    params.log_warps = log_warps_of(variant, shape);
    params.log_splits = variant->log_splits;
    params.log_each_max = variant->log_each;
    params.rows_min = 1;
    params.rows_max = DECODE_ROWS_MAX;
    return params;
}

// The driver places CTAs side by side as long as there is room, even while other SMs are idle: shared memory is asked
// for such that an SM has room for its even share of them and no more.
static struct cuda_call decode_call(const struct kernel *kernel, const struct attention_args *args,
                                    const struct cuda_shape *shape, const struct cuda_attention *params)
{
    const struct decode_variant *variant = kernel->variant;
    struct cuda_call call = cuda_call_make(kernel->functions[0], (unsigned)params->ctas, 1, WARP << params->log_warps,
                                           params, sizeof *params);
    size_t ring = ring_bytes(variant, &args->cache.layout, cuda_code_sm(shape->sm));
    size_t shared = ring + (size_t)shape->sequences * SPLIT_WORK_BYTES;
    size_t even = (size_t)shape->shared_bytes / (size_t)(params->ctas_per_sm + 1) + 1;
    call.shared_bytes = (unsigned)(shared > even ? shared : even);
    return call;
}

// Grid (pairs of a sequence and a head, row of a sequence): where there are many, no more CTAs than can begin beside
// those of the kernel before, so that the next kernel can begin, too. A warp has a pair for each lane at most.
static struct cuda_call combine_call(const struct kernel *kernel, const struct attention_args *args,
                                     const struct cuda_shape *shape, const struct cuda_attention *params)
{
    bool rotated = args->cache.layout.v.dtype == DTYPE_INT4_TOKEN, few = shape->sequences <= SPLIT_COMBINE_FEW;
    unsigned rows = (unsigned)rows_of(shape), warps = rotated || few ? 1 : SPLIT_COMBINE_WARPS;
    unsigned each = rotated ? SPLIT_COMBINE_ROTATED : 1;
    int64_t pairs = (int64_t)shape->sequences * args->heads;
    unsigned all = cuda_blocks(pairs, warps), least = cuda_blocks(pairs, WARP * warps);
    unsigned most = cuda_blocks(shape->multiprocessors, rows) * each, ctas = few || all < most ? all : most;
    struct cuda_call call = cuda_call_make(kernel->functions[1], ctas > least ? ctas : least, rows, warps * WARP,
                                           params, sizeof *params);
    call.shared_bytes = rotated ? (unsigned)args->cache.layout.v.dim * sizeof(float) : 0;
    return call;
}

static int describe_decode(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                           struct cuda_call *calls)
{
    const struct attention_args *args = arguments;
    const struct decode_variant *variant = kernel->variant;
    if (shape->sequences == 1 && shape->rows_each > DECODE_ROWS_MAX)
        return 0;
    struct cuda_attention params = params_of(variant, args, shape);
    calls[0] = decode_call(kernel, args, shape, &params);
    if (chunks_max(variant, shape) == 1 && args->cache.layout.v.dtype != DTYPE_INT4_TOKEN)
        return 1; // nothing is ever in chunks
    calls[1] = combine_call(kernel, args, shape, &params);
    return 2;
}

bool attention_decode_is_small(const struct kernel *kernel, const struct attention_args *args,
                               const struct cuda_shape *shape)
{
    return kernel->describe == describe_decode
        && work_tiles_max(kernel->variant, args, shape) <= shape->multiprocessors;
}

// The combining kernel reads as many results as there may be: that reaches no further than this.
static size_t scratch_bytes(const struct kernel_extent *extent)
{
    size_t results = (size_t)extent->sequences * (size_t)extent->heads << SPLIT_LOG_RESULTS;
    return results * (size_t)(extent->width / extent->heads + SPLIT_TAIL) * sizeof(float);
}

// ---- rows ----

// The cache formats whose bytes a form dequantises.
#define DTYPES_F16 DTYPE_BIT(F16)
#define DTYPES_BF16 DTYPE_BIT(BF16)
#define DTYPES_E4M3 (DTYPE_BIT(FP8_E4M3) | DTYPE_BIT(FP8_TOKEN))
#define DTYPES_E5M2 DTYPE_BIT(FP8_E5M2)
#define DTYPES_INT8 DTYPE_BIT(INT8_TOKEN)
#define DTYPES_INT4 DTYPE_BIT(INT4_TOKEN)
#define DTYPES_NVFP4 (DTYPE_BIT(NVFP4) | DTYPE_BIT(NVFP4_4OVER6))

static const int large_architectures[] = { 90, 100, 103, 0 }; // DECODE_LARGE

#define ROW(word)                                                                                                   \
    .name = word, .functions = { word, "attention_decode_combine" }, ATTENTION_ROW, .scratch_bytes = scratch_bytes, \
    .describe = describe_decode
#define ROW_OF(word, K, V, dim, ...)                                                            \
    ROW("attention_decode_" #word "_" #dim), .head_dim = dim, .k = DTYPES_##K, .v = DTYPES_##V, \
        .variant = &(const struct decode_variant)                                               \
    {                                                                                           \
        FORM_##K, FORM_##V, __VA_ARGS__                                                         \
    }

const struct kernel cuda_attention_decode_rows[] = {
#define X(...) \
    { ROW_OF(__VA_ARGS__), .priority = 3, .load = KERNEL_DECODE_SMALL, .architectures = large_architectures },
    DECODE_SMALL_KERNELS(X)
#undef X
#define X(...) { ROW_OF(__VA_ARGS__), .priority = 2, .load = KERNEL_DECODE, .architectures = cuda_all_architectures },
        DECODE_KERNELS(X)
#undef X
            { ROW("attention_decode_plain"), .priority = 1, .load = KERNEL_DECODE,
              .architectures = cuda_all_architectures, .k = CUDA_ALL_KV, .v = CUDA_ALL_KV,
              .head_dim_multiple = ATTENTION_DIM_MULTIPLE, .head_dim_max = ATTENTION_DIM_MAX,
              .variant = &(const struct decode_variant){ .warps = PLAIN_WARPS,
                                                         .ctas = PLAIN_CTAS,
                                                         .log_splits = PLAIN_LOG_SPLITS },
              .slow = "computed without tensor cores; head sizes 64, 128, 192 and 256 have them, with K and V in one "
                      "cache format of 16 bits or fewer (int4 not at 192), or with fp8_e4m3 and nvfp4 at 64 and 128" },
};
const int cuda_attention_decode_count = sizeof cuda_attention_decode_rows / sizeof *cuda_attention_decode_rows;
