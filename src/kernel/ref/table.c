// SPDX-License-Identifier: Apache-2.0
// kernel/ref/table.c: one reference kernel per line of the table of ops. It reads every format of base/dtype.h.
#include "kernel/ref/table.h"

#define BIT_IF_W(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_W ? DTYPE_BIT(id) : 0)
#define BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define ALL_W (0 DTYPES(BIT_IF_W))
#define ALL_KV (0 DTYPES(BIT_IF_KV))
#define WIDE_KV (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

// clang-format off
#define FORMATS_NONE
#define FORMATS_WEIGHTS .weights = ALL_W,
#define FORMATS_CACHE \
    .k = ALL_KV, .v = ALL_KV, .latents = KV_LATENT_FORMATS, .sink = WIDE_KV, .head_dim_max = HEAD_DIM_MAX,
#define ROW(id, word, formats, ...) \
    [OP_##id] = { .name = #word "_ref", .op = OP_##id, .load = KERNEL_ANY, FORMATS_##formats .run = word##_ref },
// clang-format on

const struct kernel ref_kernels[OP_COUNT] = { OPS(ROW)[OP_ROUTE].prepare = route_prepare_ref };
const int ref_kernel_count = OP_COUNT;
