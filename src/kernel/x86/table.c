// SPDX-License-Identifier: Apache-2.0
// kernel/x86/table.c: the rows of the kernels of this folder, for AVX2, AVX-512 and AMX.
#include "kernel/x86/table.h"

#include "kernel/x86/linear_tile.h"

enum { HEAD_DIM_MULTIPLE = 16 };

#define BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define ALL_KV (0 DTYPES(BIT_IF_KV))
#define FLOATS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

// Scratch for packed activations; both layouts if the op's weight formats need both.
static size_t tiled_bytes(const struct kernel_extent *extent, enum tile_planes planes)
{
    size_t token = 0;
    if (extent->weights & PACKED_INT8_SET)
        token += (size_t)(extent->width / INT8_BLOCK) * (size_t)tile_integer_bytes((int)planes);
    if (extent->weights & PACKED_FLOAT_SET)
        token += (size_t)extent->width * TILE_FLOAT_BYTES;
    return (size_t)extent->rows * token;
}

static size_t int16_scratch(const struct kernel_extent *extent) { return tiled_bytes(extent, TILE_INT16); }
static size_t int8_scratch(const struct kernel_extent *extent) { return tiled_bytes(extent, TILE_INT8); }

// Scratch for the KV splits of each head.
static size_t partials_bytes(const struct kernel_extent *extent)
{
    size_t row = (size_t)extent->width + (size_t)(extent->heads * ATTENTION_PARTIAL_EXTRA);
    return ATTENTION_PARTIALS * row * sizeof(float);
}

#define ROW(isa, rank, id, word) .name = word, .op = OP_##id, .priority = rank, .needs = X86_NEEDS_##isa
// Weights are read as they are packed. Activations are rounded to 16 bits, or to 8 where that is asked for.
#define WEIGHTS .weights = PACKED_INT8_SET | PACKED_FLOAT_SET, .packing = &x86_packing
#define INT16 WEIGHTS, .int16 = PACKED_INT8_SET
#define INT8 WEIGHTS, .int8 = PACKED_INT8_SET

// clang-format off
#define LINEAR_DECODE(isa, rank)                                                                                 \
    { ROW(isa, rank, LINEAR, "linear_" #isa "_decode"), INT16, .load = KERNEL_DECODE,                          \
      .run = linear_decode_##isa },                                                                              \
    { ROW(isa, rank + 1, LINEAR, "linear_" #isa "_int8_decode"), INT8, .load = KERNEL_DECODE,                    \
      .run = linear_int8_decode_##isa },
#define LINEAR_PREFILL(isa, rank)                                                                                \
    { ROW(isa, rank, LINEAR, "linear_" #isa "_prefill"), INT16, .load = KERNEL_PREFILL,                        \
      .run = linear_prefill_##isa, .prepare = linear_prepare_##isa, .scratch_bytes = int16_scratch },            \
    { ROW(isa, rank + 1, LINEAR, "linear_" #isa "_int8_prefill"), INT8, .load = KERNEL_PREFILL,                  \
      .run = linear_int8_prefill_##isa, .prepare = linear_int8_prepare_##isa, .scratch_bytes = int8_scratch },
#define EXPERTS(isa, rank)                                                                                       \
    { ROW(isa, rank, EXPERTS, "experts_" #isa), INT16, .load = KERNEL_ANY,                                     \
      .run = experts_##isa, .prepare = experts_prepare_##isa, .scratch_bytes = int16_scratch },                  \
    { ROW(isa, rank + 1, EXPERTS, "experts_" #isa "_int8"), INT8, .load = KERNEL_ANY,                            \
      .run = experts_int8_##isa, .prepare = experts_int8_prepare_##isa, .scratch_bytes = int8_scratch },

#define ANY(isa, rank, id, op, ...)                                                                              \
    { ROW(isa, rank, id, #op "_" #isa), .load = KERNEL_ANY, .run = op##_##isa, __VA_ARGS__ },
#define CACHE                                                                                                    \
    .k = ALL_KV, .v = ALL_KV, .latents = KV_LATENT_FORMATS, .sink = FLOATS,                                      \
    .head_dim_multiple = HEAD_DIM_MULTIPLE, .head_dim_max = HEAD_DIM_MAX

// Attention rounds queries and probabilities to 16 bits where the cache holds integers (kernel/x86/page_integers.h).
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
    LINEAR_DECODE(avx2, 10) LINEAR_DECODE(avx512, 20)
    LINEAR_PREFILL(avx2, 10) LINEAR_PREFILL(avx512, 20) LINEAR_PREFILL(amx, 30)
    EXPERTS(avx2, 10) EXPERTS(avx512, 20) EXPERTS(amx, 30)
    ROWS(avx2, 10) ROWS(avx512, 20)
};
// clang-format on
const int x86_kernel_count = sizeof x86_kernels / sizeof *x86_kernels;
