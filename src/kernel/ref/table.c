// SPDX-License-Identifier: Apache-2.0
#include "kernel/ref/table.h"

// The reference kernels support every weight and cache format of base/dtype.h.
#define BIT_IF_W(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_W ? DTYPE_BIT(id) : 0)
#define BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define ALL_W (0 DTYPES(BIT_IF_W))
#define ALL_KV (0 DTYPES(BIT_IF_KV))
#define WIDE_KV (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

// clang-format off
#define REF(id, word, ...) \
    { .name = #word "_ref", .op = OP_##id, .load = KERNEL_ANY, .run = word##_ref, __VA_ARGS__ },
#define CACHE .k = ALL_KV, .v = ALL_KV, .latents = KV_LATENT_FORMATS, .sink = WIDE_KV, .head_dim_max = HEAD_DIM_MAX

const struct kernel ref_kernels[] = {
    REF(EMBED, embed, .weights = ALL_W)
    REF(NORM, norm)
    REF(LINEAR, linear, .weights = ALL_W)
    REF(PER_HEAD_LINEAR, per_head_linear, .weights = ALL_W)
    REF(ROPE, rope)
    REF(TRANSFORM, transform)
    REF(KV_WRITE, kv_write, CACHE)
    REF(ATTENTION, attention, CACHE)
    REF(ACT_MUL, act_mul)
    REF(ADD, add)
    REF(PICK, pick)
    REF(SOFTCAP, softcap)
    REF(COPY, copy)
    REF(ROUTE, route, .prepare = route_prepare_ref)
    REF(EXPERTS, experts, .weights = ALL_W)
    REF(COMBINE, combine)
    REF(CONV, conv)
    REF(SSM_SCAN, ssm_scan)
    REF(GATED_DELTA, gated_delta)
    REF(ALL_REDUCE, all_reduce)
    REF(ALL_GATHER, all_gather)
};
const int ref_kernel_count = sizeof ref_kernels / sizeof *ref_kernels;
