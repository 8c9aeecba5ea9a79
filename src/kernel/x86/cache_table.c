// SPDX-License-Identifier: Apache-2.0
#include "kernel/x86/cache_table.h"

#define BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define ALL_KV (0 DTYPES(BIT_IF_KV))

enum { HEAD_DIM_MULTIPLE = 16 };

// Room for the segments of each head.
static size_t partials_bytes(const struct kernel_extent *extent)
{
    size_t row = (size_t)extent->width + (size_t)(extent->heads * ATTENTION_PARTIAL_EXTRA);
    return ATTENTION_PARTIALS * row * sizeof(float);
}

#define ROW(isa, features, rank, id, word) \
    .name = word "_" #isa, .op = OP_##id, .priority = rank, .load = KERNEL_ANY, .needs = features
#define CACHE_ROW(...)                                                                                     \
    ROW(__VA_ARGS__), .k = ALL_KV, .v = ALL_KV, .latents = KV_LATENT_FORMATS,                              \
        .sink = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16), .head_dim_multiple = HEAD_DIM_MULTIPLE, \
        .head_dim_max = HEAD_DIM_MAX
#define FLOAT_WEIGHTS (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

// Attention rounds queries and shares to 16 bits where the cache holds integers (kernel/x86/page_integers.h).
#define ROWS(isa, features, rank)                                                                         \
    { CACHE_ROW(isa, features, rank, ATTENTION, "attention"), .tolerance = 2e-4f, .run = attention_##isa, \
      .prepare = attention_prepare_##isa, .scratch_bytes = partials_bytes },                              \
        { CACHE_ROW(isa, features, rank, KV_WRITE, "kv_write"), .run = kv_write_##isa },                  \
        { ROW(isa, features, rank, PER_HEAD_LINEAR, "per_head_linear"), .weights = FLOAT_WEIGHTS,         \
          .run = per_head_linear_##isa },                                                                 \
        { ROW(isa, features, rank, CONV, "conv"), .run = conv_##isa },                                    \
        { ROW(isa, features, rank, SSM_SCAN, "ssm_scan"), .run = ssm_scan_##isa },                        \
        { ROW(isa, features, rank, GATED_DELTA, "gated_delta"), .run = gated_delta_##isa },               \
        { ROW(isa, features, rank, NORM, "norm"), .run = norm_##isa },                                    \
        { ROW(isa, features, rank, ROPE, "rope"), .run = rope_##isa },                                    \
        { ROW(isa, features, rank, TRANSFORM, "transform"), .head_dim_multiple = HEAD_DIM_MULTIPLE,       \
          .run = transform_##isa },                                                                       \
        { ROW(isa, features, rank, ACT_MUL, "act_mul"), .run = act_mul_##isa },                           \
        { ROW(isa, features, rank, ADD, "add"), .run = add_##isa },                                       \
        { ROW(isa, features, rank, ALL_REDUCE, "all_reduce"), .run = all_reduce_##isa },                  \
        { ROW(isa, features, rank, SOFTCAP, "softcap"), .run = softcap_##isa },

const struct kernel x86_cache_kernels[] = { CACHE_ISAS(ROWS) };
const int x86_cache_kernel_count = sizeof x86_cache_kernels / sizeof *x86_cache_kernels;
