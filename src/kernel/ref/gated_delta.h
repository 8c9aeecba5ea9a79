// SPDX-License-Identifier: Apache-2.0
// kernel/ref/gated_delta.h: the inputs of one step of the gated delta rule for one head, shared by all CPU kernels.
#ifndef KERNEL_REF_GATED_DELTA_H
#define KERNEL_REF_GATED_DELTA_H

#include "kernel/op.h"

struct delta_step {
    float query[GATED_DELTA_KEYS_MAX], key[GATED_DELTA_KEYS_MAX]; // L2-normalised; query / sqrt(keys)
    float decay, beta;
    const float *value;
    float *out;
};

void delta_step_of(const struct gated_delta_args *args, int row, int head, struct delta_step *out);

#endif
