// SPDX-License-Identifier: Apache-2.0
// kernel/fault.h: a switch for tests. NIBBLE_FAULT=NAME makes that kernel lie: whenever it has run, one of its values
// is far off; with NIBBLE_FAULT=NAME:nan it is no number. Checks and steps both bind their kernels here, so that a lie
// is told to both.
#ifndef KERNEL_FAULT_H
#define KERNEL_FAULT_H

#include "base/memory.h"
#include "kernel/kernel.h"

// The kernel on these arguments, spoilt if it is the one. The environment is read here and at no other time.
struct kernel_call fault_bind(const struct kernel *kernel, const void *args, struct arena *arena);

// For kernels on a device, whose results have been brought here: spoils them, if it is the one.
void fault_apply(const struct kernel *kernel, const void *args);

#endif
