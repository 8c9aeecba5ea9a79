// SPDX-License-Identifier: Apache-2.0
// tools/bench.h: the parts of `nibble bench`: bench.c chooses the cases, bench_measure.c times them, and bench_report.c
// prints them as a table or as JSON, which a page draws (output.h). bench_ops.c prints a table of ops.
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "base/strbuf.h"
#include "tools/bench_ops.h"
#include "nibble.h"

enum { BENCH_BATCH_MAX = 512, BENCH_REPEATS_MAX = 1000 };

// A cache format and a number of threads: one engine, open from beginning to end.
struct bench_subject {
    const char *format;
    int threads; // once it is open, 0: a GPU computes
    struct nibble_engine *engine;
    struct nibble_scheduler *scheduler;
    struct nibble_ceiling ceiling;
    struct nibble_trace trace;  // with --ops
    struct bench_ops *recorded; // to which ops are added while a case is timed; NULL: they are not
};

enum bench_kind { BENCH_PREFILL, BENCH_DECODE };

// A line of the table. Prefill reads `prompt` tokens of one sequence, decoding draws `new` tokens in each of `batch`
// sequences; `depth` tokens of each are in the cache before.
struct bench_case {
    struct bench_subject *subject; // borrowed
    enum bench_kind kind;
    int prompt, new, depth, batch;
    double *samples; // tokens per second, summed over the batch, in the order they were taken
    int sample_count;
    struct bench_ops *ops; // with --ops, else NULL
};

struct bench_run {
    const char *model;
    struct bench_subject *subjects;
    int subject_count;
    struct bench_case *cases;
    int case_count;
    int repeats;
    bool ops;     // each op is timed by itself
    bool stopped; // by Ctrl-C: some cases have fewer samples, or none
};

// The longest sequence of a case, in tokens.
int bench_case_length(const struct bench_case *wanted);

// Measures every case once untimed and then as often as asked, cases interleaved, so that a machine that slows down
// does so for all of them. Ctrl-C ends it early, without an error.
bool bench_measure(struct bench_run *bench, struct error *err);

// The trace callback of --ops: `context` is the subject.
void bench_record_op(void *context, const struct nibble_op *op);

const char *bench_kind_word(enum bench_kind kind);
void bench_print_machine(const struct bench_run *bench, struct strbuf *out); // what computed, and its ceilings
void bench_print_table(const struct bench_run *bench, struct strbuf *out);
void bench_print_json(const struct bench_run *bench, struct strbuf *out);

#endif
