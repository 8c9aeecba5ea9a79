// SPDX-License-Identifier: Apache-2.0
// kernel/ref/table.h: the reference kernels. They define what each op means; every faster row is tested against them.
#ifndef KERNEL_REF_TABLE_H
#define KERNEL_REF_TABLE_H

#include "kernel/kernel.h"

extern const struct kernel ref_kernels[];
extern const int ref_kernel_count;

typedef void ref_kernel(const void *args, int part, int parts);
ref_kernel embed_ref, norm_ref, linear_ref, per_head_linear_ref, rope_ref, transform_ref, kv_write_ref, attention_ref,
    act_mul_ref, add_ref, pick_ref, softcap_ref, copy_ref, all_reduce_ref, all_gather_ref, route_prepare_ref, route_ref,
    experts_ref, combine_ref, conv_ref, ssm_scan_ref, gated_delta_ref;

#endif
