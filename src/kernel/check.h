// SPDX-License-Identifier: Apache-2.0
// kernel/check.h: runs a kernel and the reference of its op on the same input and says how far they are apart.
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include "kernel/testcase.h"

enum { CHECK_CASES_MAX = 4 * DTYPE_COUNT };

// Every format that a row lists, for decode and for prefill: each weight format; each cache format on both sides, and
// beside another one. Returns how many; their seed is 0 and their head size is drawn.
int check_cases(const struct kernel *kernel, struct testcase_options out[CHECK_CASES_MAX]);

// Lists the neighbours that a row is checked with: none, and those it says it fuses, as they come in models. Returns
// how many sets of KERNEL_FUSES_* there are.
enum { CHECK_FUSED_MAX = 8 };
int check_fused(const struct kernel *kernel, uint32_t out[CHECK_FUSED_MAX]);

// Where rows run that do not run on this CPU.
struct check_device {
    // Runs a row on a test case, whose outputs then hold what it made of them, in a step that has as much room as the
    // test case says. *strayed becomes true if it wrote beside its results.
    bool (*run)(const struct check_device *device, const struct kernel *kernel, struct testcase *testcase,
                bool *strayed, struct error *err);
};

struct check_result {
    double error; // the largest difference, as a part of the largest reference value
    double tolerance;
    const char *flaw; // what it does that no kernel may do, or NULL
    bool ok;
    struct error trouble; // its text: why the device did not run it; "" otherwise
};

// `device` is for rows that are not for CPUs.
void check_run(const struct kernel *kernel, const struct testcase_options *wanted, const struct check_device *device,
               struct check_result *out);

#endif
