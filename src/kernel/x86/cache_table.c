// SPDX-License-Identifier: Apache-2.0
#include "kernel/x86/cache_table.h"

#define BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define ALL_KV (0 DTYPES(BIT_IF_KV))

enum { HEAD_DIM_MULTIPLE = 16 };

// Room for the segments of each head. width is that of a row of results, so there are width / HEAD_DIM_MULTIPLE heads at
// most.
static size_t partials_bytes(uint64_t weights, int rows, int width)
{
    (void)weights, (void)rows;
    size_t row = (size_t)width + (size_t)(width / HEAD_DIM_MULTIPLE * ATTENTION_PARTIAL_EXTRA);
    return ATTENTION_PARTIALS * row * sizeof(float);
}

#define ROWS(isa, features, rank)                                                                                   \
    { .name = "attention_" #isa, .op = OP_ATTENTION, .priority = rank, .load = KERNEL_ANY, .needs = features,       \
      .k = ALL_KV, .v = ALL_KV, .head_dim_multiple = HEAD_DIM_MULTIPLE, .head_dim_max = HEAD_DIM_MAX,               \
      .tolerance = 2e-4f, .run = attention_##isa, .prepare = attention_prepare_##isa, .scratch_bytes = partials_bytes },

const struct kernel x86_cache_kernels[] = { CACHE_ISAS(ROWS) };
const int x86_cache_kernel_count = sizeof x86_cache_kernels / sizeof *x86_cache_kernels;
