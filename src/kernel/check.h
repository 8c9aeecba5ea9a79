// SPDX-License-Identifier: Apache-2.0
// kernel/check.h: runs a kernel and the reference of its op on the same input and says how far they are apart.
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include "kernel/sample.h"

enum { CHECK_CASES_MAX = 4 * DTYPE_COUNT };

// Every format that a row lists, for few and for many tokens: each weight format; each cache format on both sides, and
// beside another one. Returns how many; their seed is 0 and their head size is drawn.
int check_cases(const struct kernel *kernel, struct sample_case out[CHECK_CASES_MAX]);

struct check_result {
    double error;       // the largest difference, as a part of the largest reference value
    double tolerance;
    const char *flaw;   // what it does that no kernel may do, or NULL
    bool ok;
};

void check_run(const struct kernel *kernel, const struct sample_case *wanted, struct check_result *out);

#endif
