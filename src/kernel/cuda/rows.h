// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/rows.h: the rows of kernels for NVIDIA GPUs, one table per family.
#ifndef KERNEL_CUDA_ROWS_H
#define KERNEL_CUDA_ROWS_H

#include "kernel/kernel.h"

extern const struct kernel cuda_attention_decode_rows[];
extern const int cuda_attention_decode_count;
extern const struct kernel cuda_attention_prefill_rows[];
extern const int cuda_attention_prefill_count;
extern const struct kernel cuda_experts_rows[];
extern const int cuda_experts_count;
extern const struct kernel cuda_gated_delta_rows[];
extern const int cuda_gated_delta_count;
extern const struct kernel cuda_kv_write_rows[];
extern const int cuda_kv_write_count;
extern const struct kernel cuda_latent_rows[];
extern const int cuda_latent_count;
extern const struct kernel cuda_linear_float_rows[];
extern const int cuda_linear_float_count;
extern const struct kernel cuda_linear_native_rows[];
extern const int cuda_linear_native_count;
extern const struct kernel cuda_linear_skinny_rows[];
extern const int cuda_linear_skinny_count;
extern const struct kernel cuda_linear_wgmma_rows[];
extern const int cuda_linear_wgmma_count;
extern const struct kernel cuda_linear_wide_rows[];
extern const int cuda_linear_wide_count;
extern const struct kernel cuda_per_head_linear_rows[];
extern const int cuda_per_head_linear_count;
extern const struct kernel cuda_route_rows[];
extern const int cuda_route_count;
extern const struct kernel cuda_small_rows[];
extern const int cuda_small_count;
extern const struct kernel cuda_ssm_scan_rows[];
extern const int cuda_ssm_scan_count;

#endif
