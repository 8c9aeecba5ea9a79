// SPDX-License-Identifier: Apache-2.0
// kernel/ref/table.h: the reference kernels. They define what each op means; every faster row is tested against them.
#ifndef KERNEL_REF_TABLE_H
#define KERNEL_REF_TABLE_H

#include "kernel/kernel.h"

extern const struct kernel ref_kernels[];
extern const int ref_kernel_count;

#define REFERENCE(id, word, ...) void word##_ref(const void *args, int chunk, int chunks);
OPS(REFERENCE)
#undef REFERENCE
void route_prepare_ref(const void *args, int chunk, int chunks);

#endif
