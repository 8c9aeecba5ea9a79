// SPDX-License-Identifier: Apache-2.0
// kernel/x86/cache_table.h: the kernels for x86-64 that read and write the cache, and those that look at one row or one
// head.
#ifndef KERNEL_X86_CACHE_TABLE_H
#define KERNEL_X86_CACHE_TABLE_H

#include "kernel/kernel.h"

extern const struct kernel x86_cache_kernels[];
extern const int x86_cache_kernel_count;

// Every function once for each instruction set; the files of that suffix are compiled for what the row needs.
//    isa      needs                                                                             priority
// clang-format off
#define CACHE_ISAS(X)                                                                                      \
    X(avx2,   CPU_AVX2 | CPU_FMA | CPU_F16C,                                                           10) \
    X(avx512, CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512VL | CPU_AVX512VNNI, 20)
// clang-format on

#define CACHE_FUNCTIONS(isa, ...)                                        \
    void attention_##isa(const void *args, int part, int parts);         \
    void attention_prepare_##isa(const void *args, int part, int parts); \
    void kv_write_##isa(const void *args, int part, int parts);          \
    void per_head_linear_##isa(const void *args, int part, int parts);   \
    void conv_##isa(const void *args, int part, int parts);              \
    void ssm_scan_##isa(const void *args, int part, int parts);          \
    void gated_delta_##isa(const void *args, int part, int parts);       \
    void norm_##isa(const void *args, int part, int parts);              \
    void rope_##isa(const void *args, int part, int parts);              \
    void transform_##isa(const void *args, int part, int parts);         \
    void act_mul_##isa(const void *args, int part, int parts);           \
    void add_##isa(const void *args, int part, int parts);               \
    void all_reduce_##isa(const void *args, int part, int parts);        \
    void softcap_##isa(const void *args, int part, int parts);
CACHE_ISAS(CACHE_FUNCTIONS)
#undef CACHE_FUNCTIONS

// Segments of context (kernel/x86/attention.h) that may be shared out, of all rows together, and the floats that each
// query keeps of a segment besides the sums over V.
enum { ATTENTION_PARTIALS = 1024, ATTENTION_PARTIAL_EXTRA = 2 };

#endif
