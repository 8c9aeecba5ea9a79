// SPDX-License-Identifier: Apache-2.0
// kernel/ref/ssm.h: parts of the selective scan that all CPU kernels share.
#ifndef KERNEL_REF_SSM_H
#define KERNEL_REF_SSM_H

#include "kernel/op.h"

#define SCAN_SOFTPLUS_LINEAR 20.0f // softplus(x) is x from here on, as in PyTorch

// Copies or clears one head's state matrix, (keys, values), into the page it will be stored in, and returns it.
float *scan_begin(const struct state_place *place, const struct batch *batch, const struct batch_sequence *sequence,
                  int head);

// The inputs of one token's step for one head.
struct scan_step {
    const float *x, *b, *c;
    float *out;
    float dt, decay, d;
};

struct scan_step scan_step_of(const struct ssm_scan_args *args, int row, int head);

#endif
