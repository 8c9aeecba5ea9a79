// SPDX-License-Identifier: Apache-2.0
// kernel/fault.h: a switch for tests. NIBBLE_FAULT=NAME makes that kernel lie: whenever it has run, one of its values
// is far off. Whatever runs kernels binds them here, so that the lie is told to checks and to steps alike.
#ifndef KERNEL_FAULT_H
#define KERNEL_FAULT_H

#include "base/memory.h"
#include "kernel/kernel.h"

// The kernel on these arguments; the one named by NIBBLE_FAULT spoilt. The environment is read here and at no other time.
struct kernel_call fault_bind(const struct kernel *kernel, const void *args, struct arena *arena);

#endif
