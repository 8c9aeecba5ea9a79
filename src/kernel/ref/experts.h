// SPDX-License-Identifier: Apache-2.0
// kernel/ref/experts.h: sorting a step's (token, expert) pairs by expert, used by all CPU kernels.
#ifndef KERNEL_REF_EXPERTS_H
#define KERNEL_REF_EXPERTS_H

#include "kernel/op.h"

// Counting sort of the pairs by expert, in token order: fills `first` and `pair` from `expert`.
void experts_order(const struct routes *routes, int rows);

#endif
