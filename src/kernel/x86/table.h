// SPDX-License-Identifier: Apache-2.0
// kernel/x86/table.h: the kernels for x86-64, by instruction set.
#ifndef KERNEL_X86_TABLE_H
#define KERNEL_X86_TABLE_H

#include "kernel/kernel.h"

extern const struct kernel x86_kernels[];
extern const int x86_kernel_count;

void linear_avx2_few(const void *args, int part, int parts);
void linear_avx2_many(const void *args, int part, int parts);
void linear_avx2_prepare(const void *args, int part, int parts);
void linear_avx2_float_few(const void *args, int part, int parts);
void linear_avx2_float_many(const void *args, int part, int parts);
void linear_avx2_float_prepare(const void *args, int part, int parts);
void linear_avx512_few(const void *args, int part, int parts);
void linear_avx512_many(const void *args, int part, int parts);
void linear_avx512_prepare(const void *args, int part, int parts);
void linear_avx512_float_few(const void *args, int part, int parts);
void linear_avx512_float_many(const void *args, int part, int parts);
void linear_avx512_float_prepare(const void *args, int part, int parts);
void linear_amx_many(const void *args, int part, int parts);
void linear_amx_prepare(const void *args, int part, int parts);
void experts_avx2(const void *args, int part, int parts);
void experts_avx2_prepare(const void *args, int part, int parts);
void experts_avx512(const void *args, int part, int parts);
void experts_avx512_prepare(const void *args, int part, int parts);
void experts_amx(const void *args, int part, int parts);
void experts_amx_prepare(const void *args, int part, int parts);

#endif
