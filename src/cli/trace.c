// SPDX-License-Identifier: Apache-2.0
#include "cli/trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

const char *const trace_words[] = { "none", "ops", NULL };

// Columns are words without spaces. The time comes last, because it alone differs from run to run.
static void print_op(void *context, const struct nibble_op *op)
{
    struct cli_trace *trace = context;
    char checksum[32] = "-", rms[32] = "-";
    if (op->has_values) {
        snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)op->checksum);
        snprintf(rms, sizeof rms, "%.4g", op->rms);
    }
    if (!trace->has_header)
        cli_print("trace %4s %6s  %-16s %-28s %-26s %10s %-16s %10s\n", "step", "tokens", "op", "kernel", "shape",
                  "rms", "checksum", "us");
    trace->has_header = true;
    cli_print("trace %4d %6d  %-16s %-28s %-26s %10s %-16s %10.1f\n", op->step, op->tokens, op->name, op->kernel,
              op->shape, rms, checksum, 1e6 * op->seconds);
}

static void print_dumped(void *context, const char *path)
{
    (void)context;
    cli_print("NIBBLE_DUMP: wrote %s\n", path);
}

const struct nibble_trace *cli_trace_open(struct cli_trace *trace, enum trace_word word)
{
    const char *dump = getenv("NIBBLE_DUMP");
    bool has_lines = word == TRACE_OPS;
    *trace = (struct cli_trace){ .own = { .op = has_lines ? print_op : NULL,
                                          .dumped = print_dumped,
                                          .context = trace,
                                          .values = has_lines,
                                          .dump = dump && *dump ? dump : NULL } };
    return has_lines || trace->own.dump ? &trace->own : NULL;
}
