// SPDX-License-Identifier: Apache-2.0
// kernel/ref/table.h: the reference kernels. They define what each op means; every faster row is tested against them.
#ifndef KERNEL_REF_TABLE_H
#define KERNEL_REF_TABLE_H

#include "kernel/kernel.h"

extern const struct kernel ref_kernels[];
extern const int ref_kernel_count;

void embed_ref(const void *args, int part, int parts);
void norm_ref(const void *args, int part, int parts);
void linear_ref(const void *args, int part, int parts);
void per_head_linear_ref(const void *args, int part, int parts);
void rope_ref(const void *args, int part, int parts);
void transform_ref(const void *args, int part, int parts);
void kv_write_ref(const void *args, int part, int parts);
void attention_ref(const void *args, int part, int parts);
void act_mul_ref(const void *args, int part, int parts);
void add_ref(const void *args, int part, int parts);
void pick_ref(const void *args, int part, int parts);
void softcap_ref(const void *args, int part, int parts);
void copy_ref(const void *args, int part, int parts);
void all_reduce_ref(const void *args, int part, int parts);
void all_gather_ref(const void *args, int part, int parts);
void route_prepare_ref(const void *args, int part, int parts);
void route_ref(const void *args, int part, int parts);
void experts_ref(const void *args, int part, int parts);
void combine_ref(const void *args, int part, int parts);
void conv_ref(const void *args, int part, int parts);
void ssm_scan_ref(const void *args, int part, int parts);
void gated_delta_ref(const void *args, int part, int parts);

#endif
