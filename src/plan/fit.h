// SPDX-License-Identifier: Apache-2.0
// plan/fit.h: does a kernel fit an op, at the loads that it is for? A refusal is a value: the sentence that the user
// will read.
#ifndef PLAN_FIT_H
#define PLAN_FIT_H

#include "device/device.h"
#include "kernel/kernel.h"

// Lists what an op asks of a kernel.
struct fit_request {
    enum op_kind op;
    uint64_t weights;             // formats of its matrices; 0: it has none
    int rows[LINEAR_OUTPUTS_MAX]; // of each; 0: there are no more
    int cols;                     // of all of them
    uint64_t x;                   // of norm: the format of its input
    bool rotary_behind;           // of rope: heads begin with dims that are not rotary
    int conv_kernel;              // of conv
    int keys, mixed;              // of ssm_scan and gated_delta: of a head, and all that they get of a token
    bool has_cache;
    enum dtype k, v;
    bool latent;      // V lies in K
    uint64_t sink;    // the format of sink pages; 0: there are none
    int k_dim, v_dim; // of a head; 0: it does not matter
    bool int8;        // activations may be rounded to 8 bits
};

// NULL when the kernel fits, else every reason why it does not, joined by "; ". The kernel's op is the request's op.
const char *fit_reasons(const struct kernel *kernel, const struct fit_request *request, const struct device *device,
                        struct arena *arena);

#endif
