// SPDX-License-Identifier: Apache-2.0
// kernel/fault.h: fault injection for tests. NIBBLE_FAULT=NAME makes the kernel of that name compute wrongly: whenever
// it has run, one of its values is changed to one far off; with NIBBLE_FAULT=NAME:nan to a NaN. Self-tests and steps
// both bind their kernels here, so that both see the fault.
#ifndef KERNEL_FAULT_H
#define KERNEL_FAULT_H

#include "base/memory.h"
#include "kernel/kernel.h"

// The kernel on these arguments, spoilt if it is the one. The environment is read here and at no other time.
struct kernel_call fault_bind(const struct kernel *kernel, const void *args, struct arena *arena);

// For kernels on a device, whose results have been downloaded: spoils them if the kernel is the one.
void fault_apply(const struct kernel *kernel, const void *args);

#endif
