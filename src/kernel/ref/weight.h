// SPDX-License-Identifier: Apache-2.0
// kernel/ref/weight.h: what the bytes of a weight mean: the definition that every faster kernel is tested against.
#ifndef KERNEL_REF_WEIGHT_H
#define KERNEL_REF_WEIGHT_H

#include "base/dtype.h"

// Decodes `values` consecutive weights (whole blocks) of a format whose use has W. `blocks` may lie at any address.
void weight_decode(enum dtype dtype, const void *blocks, size_t values, float *out);

#endif
