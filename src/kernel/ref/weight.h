// SPDX-License-Identifier: Apache-2.0
// kernel/ref/weight.h: dequantisation of weights, the definition that every faster kernel is tested against.
#ifndef KERNEL_REF_WEIGHT_H
#define KERNEL_REF_WEIGHT_H

#include "base/dtype.h"

// Dequantises `values` consecutive weights (whole blocks); `blocks` may have any alignment.
void weight_decode(enum dtype dtype, const void *blocks, size_t values, float *out);

#endif
