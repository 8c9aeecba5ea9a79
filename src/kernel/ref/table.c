// SPDX-License-Identifier: Apache-2.0
#include "kernel/ref/table.h"

// Every weight format and every cache format of base/dtype.h: the reference reads them all.
#define BIT_IF_W(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_W ? DTYPE_BIT(id) : 0)
#define BIT_IF_KV(id, word, use, ...) | (DTYPE_USE_##use & DTYPE_USE_KV ? DTYPE_BIT(id) : 0)
#define ALL_W (0 DTYPES(BIT_IF_W))
#define ALL_KV (0 DTYPES(BIT_IF_KV))
#define WIDE_KV (DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16))

const struct kernel ref_kernels[] = {
    { .name = "embed_ref", .op = OP_EMBED, .load = KERNEL_ANY, .weights = ALL_W, .run = embed_ref },
    { .name = "norm_ref", .op = OP_NORM, .load = KERNEL_ANY, .run = norm_ref },
    { .name = "linear_ref", .op = OP_LINEAR, .load = KERNEL_ANY, .weights = ALL_W, .run = linear_ref },
    { .name = "per_head_linear_ref",
      .op = OP_PER_HEAD_LINEAR,
      .load = KERNEL_ANY,
      .weights = ALL_W,
      .run = per_head_linear_ref },
    { .name = "rope_ref", .op = OP_ROPE, .load = KERNEL_ANY, .run = rope_ref },
    { .name = "transform_ref", .op = OP_TRANSFORM, .load = KERNEL_ANY, .run = transform_ref },
    { .name = "kv_write_ref",
      .op = OP_KV_WRITE,
      .load = KERNEL_ANY,
      .k = ALL_KV,
      .v = ALL_KV,
      .latents = KV_LATENT_FORMATS,
      .sink = WIDE_KV,
      .head_dim_max = HEAD_DIM_MAX,
      .run = kv_write_ref },
    { .name = "attention_ref",
      .op = OP_ATTENTION,
      .load = KERNEL_ANY,
      .k = ALL_KV,
      .v = ALL_KV,
      .latents = KV_LATENT_FORMATS,
      .sink = WIDE_KV,
      .head_dim_max = HEAD_DIM_MAX,
      .run = attention_ref },
    { .name = "act_mul_ref", .op = OP_ACT_MUL, .load = KERNEL_ANY, .run = act_mul_ref },
    { .name = "add_ref", .op = OP_ADD, .load = KERNEL_ANY, .run = add_ref },
    { .name = "pick_ref", .op = OP_PICK, .load = KERNEL_ANY, .run = pick_ref },
    { .name = "softcap_ref", .op = OP_SOFTCAP, .load = KERNEL_ANY, .run = softcap_ref },
    { .name = "copy_ref", .op = OP_COPY, .load = KERNEL_ANY, .run = copy_ref },
    { .name = "route_ref", .op = OP_ROUTE, .load = KERNEL_ANY, .prepare = route_prepare_ref, .run = route_ref },
    { .name = "experts_ref", .op = OP_EXPERTS, .load = KERNEL_ANY, .weights = ALL_W, .run = experts_ref },
    { .name = "combine_ref", .op = OP_COMBINE, .load = KERNEL_ANY, .run = combine_ref },
    { .name = "conv_ref", .op = OP_CONV, .load = KERNEL_ANY, .run = conv_ref },
    { .name = "ssm_scan_ref", .op = OP_SSM_SCAN, .load = KERNEL_ANY, .run = ssm_scan_ref },
    { .name = "gated_delta_ref", .op = OP_GATED_DELTA, .load = KERNEL_ANY, .run = gated_delta_ref },
    { .name = "all_reduce_ref", .op = OP_ALL_REDUCE, .load = KERNEL_ANY, .run = all_reduce_ref },
    { .name = "all_gather_ref", .op = OP_ALL_GATHER, .load = KERNEL_ANY, .run = all_gather_ref },
};
const int ref_kernel_count = sizeof ref_kernels / sizeof *ref_kernels;
