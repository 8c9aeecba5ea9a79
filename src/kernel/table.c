// SPDX-License-Identifier: Apache-2.0
// kernel/table.c: chains the tables of the instruction sets that this build has.
#include "kernel/cuda/rows.h"
#include "kernel/kernel.h"
#include "kernel/ref/table.h"
#if defined(__x86_64__)
#include "kernel/x86/table.h"
#endif

static const struct {
    const struct kernel *rows;
    const int *count;
} tables[] = {
    { ref_kernels, &ref_kernel_count },
#if defined(__x86_64__)
    { x86_kernels, &x86_kernel_count },
#endif
    { cuda_attention_decode_rows, &cuda_attention_decode_count },
    { cuda_attention_prefill_rows, &cuda_attention_prefill_count },
    { cuda_experts_rows, &cuda_experts_count },
    { cuda_gated_delta_rows, &cuda_gated_delta_count },
    { cuda_kv_write_rows, &cuda_kv_write_count },
    { cuda_latent_rows, &cuda_latent_count },
    { cuda_linear_float_rows, &cuda_linear_float_count },
    { cuda_linear_native_rows, &cuda_linear_native_count },
    { cuda_linear_skinny_rows, &cuda_linear_skinny_count },
    { cuda_linear_wgmma_rows, &cuda_linear_wgmma_count },
    { cuda_linear_wide_rows, &cuda_linear_wide_count },
    { cuda_per_head_linear_rows, &cuda_per_head_linear_count },
    { cuda_route_rows, &cuda_route_count },
    { cuda_small_rows, &cuda_small_count },
    { cuda_ssm_scan_rows, &cuda_ssm_scan_count },
};

enum { TABLES = sizeof tables / sizeof *tables };

const struct kernel *kernel_next(const struct kernel *kernel)
{
    for (int i = 0; i < TABLES; i++) {
        const struct kernel *end = tables[i].rows + *tables[i].count;
        if (!kernel)
            return tables[i].rows;
        if (kernel < tables[i].rows || kernel >= end)
            continue;
        if (kernel + 1 < end)
            return kernel + 1;
        return i + 1 < TABLES ? tables[i + 1].rows : NULL;
    }
    return NULL;
}
