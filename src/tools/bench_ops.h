// SPDX-License-Identifier: Apache-2.0
// tools/bench_ops.h: `nibble bench --ops`: a roofline of a step's ops. For each kind of op and kernel, what it moves
// and computes, how long it takes, and how far that is from what memory or arithmetic allow.
#ifndef TOOLS_BENCH_OPS_H
#define TOOLS_BENCH_OPS_H

#include "base/strbuf.h"
#include "nibble.h"

struct bench_run;

enum {
    BENCH_OPS_MAX = 128,     // kinds of ops times kernels
    BENCH_KERNEL_BYTES = 96, // of the names of an op's kernels, "a+b"; longer ones are cut
};

// Sums over the timed steps of a case.
struct bench_ops {
    struct bench_ops_row {
        const char *kind;                // of a table that lives as long as the program
        char kernel[BENCH_KERNEL_BYTES]; // a copy: a trace lends its names for the call alone
        int calls;
        double bytes, operations, seconds;
        double memory_seconds, arithmetic_seconds; // at the ceilings, each alone
        double bound_seconds;                      // the sum over calls of whichever is more
    } rows[BENCH_OPS_MAX];
    int count;
    int steps, last_step;
};

void bench_ops_add(struct bench_ops *ops, const struct nibble_op *op, const struct nibble_ceiling *ceiling);

// A table for each case.
void bench_ops_print(const struct bench_run *bench, struct strbuf *out);

#endif
