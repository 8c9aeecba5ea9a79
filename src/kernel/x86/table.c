// SPDX-License-Identifier: Apache-2.0
#include "kernel/x86/table.h"

#include "kernel/x86/linear_tile.h"

enum { HEAD_DIM_MULTIPLE = 16 };

#define BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define ALL_KV (0 DTYPES(BIT_IF_KV))
#define FLOATS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

// Scratch for packed activations; both layouts if the op's weight formats need both.
static size_t tiled_bytes(const struct kernel_extent *extent)
{
    size_t token = 0;
    if (extent->weights & PACKED_INT8_SET)
        token += (size_t)(extent->width / INT8_BLOCK) * TILE_INT8_BYTES;
    if (extent->weights & PACKED_FLOAT_SET)
        token += (size_t)extent->width * TILE_FLOAT_BYTES;
    return (size_t)extent->rows * token;
}

static size_t float_tiled_bytes(const struct kernel_extent *extent)
{
    return (size_t)extent->rows * (size_t)extent->width * TILE_FLOAT_BYTES;
}

// Scratch for the KV splits of each head.
static size_t partials_bytes(const struct kernel_extent *extent)
{
    size_t row = (size_t)extent->width + (size_t)(extent->heads * ATTENTION_PARTIAL_EXTRA);
    return ATTENTION_PARTIALS * row * sizeof(float);
}

#define ROW(isa, rank, id, word) .name = word, .op = OP_##id, .priority = rank, .needs = X86_NEEDS_##isa
#define WEIGHTS .weights = PACKED_INT8_SET | PACKED_FLOAT_SET
#define INT8_WEIGHTS WEIGHTS, .int8 = PACKED_INT8_SET, .packing = &x86_packing
#define FLOAT_WEIGHTS WEIGHTS, .packing = &x86_float_packing // activations stay f32; chosen by option only

// clang-format off
#define LINEAR_DECODE(isa, rank)                                                                                 \
    { ROW(isa, rank, LINEAR, "linear_" #isa "_decode"), INT8_WEIGHTS, .load = KERNEL_DECODE,                     \
      .run = linear_decode_##isa },
#define LINEAR_PREFILL(isa, rank)                                                                                   \
    { ROW(isa, rank, LINEAR, "linear_" #isa "_prefill"), INT8_WEIGHTS, .load = KERNEL_PREFILL,                      \
      .run = linear_prefill_##isa, .prepare = linear_prepare_##isa, .scratch_bytes = tiled_bytes },
#define LINEAR_FLOAT(isa, rank)                                                                                  \
    { ROW(isa, rank, LINEAR, "linear_" #isa "_float_decode"), FLOAT_WEIGHTS, .load = KERNEL_DECODE,                 \
      .run = linear_float_decode_##isa },                                                                           \
    { ROW(isa, rank, LINEAR, "linear_" #isa "_float_prefill"), FLOAT_WEIGHTS, .load = KERNEL_PREFILL,               \
      .run = linear_float_prefill_##isa, .prepare = linear_float_prepare_##isa, .scratch_bytes = float_tiled_bytes },
#define EXPERTS(isa, rank)                                                                                       \
    { ROW(isa, rank, EXPERTS, "experts_" #isa), INT8_WEIGHTS, .load = KERNEL_ANY,                                \
      .run = experts_##isa, .prepare = experts_prepare_##isa, .scratch_bytes = tiled_bytes },

#define ANY(isa, rank, id, op, ...)                                                                              \
    { ROW(isa, rank, id, #op "_" #isa), .load = KERNEL_ANY, .run = op##_##isa, __VA_ARGS__ },
#define CACHE                                                                                                    \
    .k = ALL_KV, .v = ALL_KV, .latents = KV_LATENT_FORMATS, .sink = FLOATS,                                      \
    .head_dim_multiple = HEAD_DIM_MULTIPLE, .head_dim_max = HEAD_DIM_MAX

// Attention rounds queries and probabilities to 16 bits where the cache holds integers (kernel/x86/page_integers.c).
#define ROWS(isa, rank)                                                                                          \
    ANY(isa, rank, ATTENTION, attention, CACHE, .tolerance = 2e-4f,                                              \
        .prepare = attention_prepare_##isa, .scratch_bytes = partials_bytes)                                     \
    ANY(isa, rank, KV_WRITE, kv_write, CACHE)                                                                    \
    ANY(isa, rank, PER_HEAD_LINEAR, per_head_linear, .weights = FLOATS)                                          \
    ANY(isa, rank, CONV, conv)                                                                                   \
    ANY(isa, rank, SSM_SCAN, ssm_scan)                                                                           \
    ANY(isa, rank, GATED_DELTA, gated_delta)                                                                     \
    ANY(isa, rank, NORM, norm)                                                                                   \
    ANY(isa, rank, ROPE, rope)                                                                                   \
    ANY(isa, rank, TRANSFORM, transform, .head_dim_multiple = HEAD_DIM_MULTIPLE)                                 \
    ANY(isa, rank, ACT_MUL, act_mul)                                                                             \
    ANY(isa, rank, ADD, add)                                                                                     \
    ANY(isa, rank, ALL_REDUCE, all_reduce)                                                                       \
    ANY(isa, rank, SOFTCAP, softcap)

const struct kernel x86_kernels[] = {
    LINEAR_DECODE(avx2, 10) LINEAR_PREFILL(avx2, 10)
    LINEAR_DECODE(avx512, 20) LINEAR_PREFILL(avx512, 20) LINEAR_PREFILL(amx, 30)
    LINEAR_FLOAT(avx2, 1) LINEAR_FLOAT(avx512, 2)
    EXPERTS(avx2, 10) EXPERTS(avx512, 20) EXPERTS(amx, 30)
    ROWS(avx2, 10) ROWS(avx512, 20)
};
// clang-format on
const int x86_kernel_count = sizeof x86_kernels / sizeof *x86_kernels;
