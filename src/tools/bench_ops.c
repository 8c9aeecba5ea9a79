// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"

static struct bench_ops_row *find_row(struct bench_ops *ops, const struct nibble_op *op)
{
    struct bench_ops_row row = { .kind = op->kind };
    snprintf(row.kernel, sizeof row.kernel, "%s", op->kernel);
    for (int i = 0; i < ops->count; i++)
        if (!strcmp(ops->rows[i].kind, row.kind) && !strcmp(ops->rows[i].kernel, row.kernel))
            return &ops->rows[i];
    if (ops->count == BENCH_OPS_MAX)
        return NULL;
    ops->rows[ops->count] = row;
    return &ops->rows[ops->count++];
}

// A rate of 0 belongs to operations that the device does not have; no op has any then.
static double seconds_at(double amount, double per_s) { return amount > 0 ? amount / per_s : 0; }

void bench_ops_add(struct bench_ops *ops, const struct nibble_op *op, const struct nibble_ceiling *ceiling)
{
    struct bench_ops_row *row = find_row(ops, op);
    const struct nibble_cost *cost = &op->cost;
    ops->steps += op->step != ops->last_step;
    ops->last_step = op->step;
    if (!row)
        return;
    double bytes = cost->read_bytes + cost->activation_bytes;
    double memory = seconds_at(cost->read_bytes, ceiling->bytes_per_s)
        + seconds_at(cost->activation_bytes, nibble_ceiling_read(ceiling, cost->activation_bytes));
    double arithmetic = seconds_at(cost->flops, ceiling->flops_per_s)
        + seconds_at(cost->int8_ops, ceiling->int8_ops_per_s);
    row->calls++;
    row->bytes += bytes;
    row->operations += cost->flops + cost->int8_ops;
    row->seconds += op->seconds;
    row->memory_seconds += memory;
    row->arithmetic_seconds += arithmetic;
    row->bound_seconds += fmax(memory, arithmetic);
}

static struct bench_ops_row sum_of(const struct bench_ops *ops)
{
    struct bench_ops_row sum = { .kind = "all" };
    for (int i = 0; i < ops->count; i++) {
        const struct bench_ops_row *row = &ops->rows[i];
        sum.calls += row->calls;
        sum.bytes += row->bytes;
        sum.operations += row->operations;
        sum.seconds += row->seconds;
        sum.memory_seconds += row->memory_seconds;
        sum.arithmetic_seconds += row->arithmetic_seconds;
        sum.bound_seconds += row->bound_seconds;
    }
    return sum;
}

// Prints a row: figures per step, except for the rates.
static void print_row(const struct bench_ops_row *row, const struct bench_ops *ops, double all_seconds,
                      struct strbuf *out)
{
    double steps = ops->steps, seconds = fmax(row->seconds, 1e-9);
    strbuf_add_format(out, "%-16s %-28s %7.0f %10.3f %10.2f %10.1f %5.1f %8.2f %9.2f %6.1f  %s\n", row->kind,
                      row->kernel, row->calls / steps, 1e-6 * row->bytes / steps, 1e-6 * row->operations / steps,
                      1e6 * row->seconds / steps, 100 * row->seconds / all_seconds, 1e-9 * row->bytes / seconds,
                      1e-9 * row->operations / seconds, 100 * row->bound_seconds / seconds,
                      row->memory_seconds >= row->arithmetic_seconds ? "memory" : "arithmetic");
}

static void print_title(const struct bench_case *measured, struct strbuf *out)
{
    const struct bench_subject *subject = measured->subject;
    strbuf_add_format(out, "\n%s, ", bench_kind_word(measured->kind));
    if (measured->kind == BENCH_PREFILL)
        strbuf_add_format(out, "%d tokens", measured->prompt);
    else
        strbuf_add_format(out, "%d tokens in each of %d sequences", measured->new, measured->batch);
    strbuf_add_format(out, " after %d, KV cache %s", measured->depth, subject->format);
    if (subject->threads)
        strbuf_add_format(out, ", %d thread%s", subject->threads, subject->threads == 1 ? "" : "s");
    strbuf_add_format(out, ": mean of %d step%s\n", measured->ops->steps, measured->ops->steps == 1 ? "" : "s");
    strbuf_add_format(out, "%-16s %-28s %7s %10s %10s %10s %5s %8s %9s %6s  %s\n", "op", "kernel", "calls", "MB",
                      "MFLOP", "us", "%time", "GB/s", "GFLOP/s", "%bound", "bound");
}

void bench_ops_print(const struct bench_run *bench, struct strbuf *out)
{
    bench_print_machine(bench, out);
    for (int i = 0; i < bench->case_count; i++) {
        const struct bench_ops *ops = bench->cases[i].ops;
        if (!ops->steps)
            continue;
        struct bench_ops_row sum = sum_of(ops);
        print_title(&bench->cases[i], out);
        for (int j = 0; j < ops->count; j++)
            print_row(&ops->rows[j], ops, fmax(sum.seconds, 1e-9), out);
        print_row(&sum, ops, fmax(sum.seconds, 1e-9), out);
    }
}
