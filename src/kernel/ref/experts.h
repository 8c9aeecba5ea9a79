// SPDX-License-Identifier: Apache-2.0
// kernel/ref/experts.h: the order of a step's pairs, which is not only the reference's.
#ifndef KERNEL_REF_EXPERTS_H
#define KERNEL_REF_EXPERTS_H

#include "kernel/op.h"

// Fills `first` and `pair` from the experts that `rows` tokens have chosen, tokens in order.
void experts_order(const struct routes *routes, int rows);

#endif
