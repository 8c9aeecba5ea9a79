// SPDX-License-Identifier: Apache-2.0
// kernel/ref/ssm.h: what all kernels of recurrent layers on CPUs have in common.
#ifndef KERNEL_REF_SSM_H
#define KERNEL_REF_SSM_H

#include "kernel/op.h"

#define SCAN_SOFTPLUS_LINEAR 20.0f // from here on softplus(x) is x

// One head's matrix, (keys, values), where it is to be left, as it was before the sequence's rows in this step.
float *scan_begin(const struct state_place *place, const struct batch *batch, const struct batch_sequence *sequence,
                  int head);

// What one token does to one head.
struct scan_step {
    const float *x, *b, *c;
    float *out;
    float time, decay, d;
};

struct scan_step scan_step_of(const struct ssm_scan_args *args, int row, int head);

#endif
