// SPDX-License-Identifier: Apache-2.0
// engine/kernels_bench.c: how fast each kernel is, beside what the machine can do. A case is bound by memory or by
// arithmetic, whichever ceiling it would meet first; its share is how near it comes to that one.
#include <stdlib.h>

#include "engine/ceiling.h"
#include "engine/kernels.h"

enum { REPEATS_MIN = 3, REPEATS_MAX = 50 };
static const double seconds_enough = 0.2;

// The loads worth timing: for most ops one token takes no time to speak of.
static const enum kernel_load loads[OP_COUNT] = {
    [OP_EMBED] = KERNEL_MANY,    [OP_NORM] = KERNEL_MANY,     [OP_LINEAR] = KERNEL_ANY,   [OP_ROPE] = KERNEL_MANY,
    [OP_KV_WRITE] = KERNEL_MANY, [OP_ATTENTION] = KERNEL_ANY, [OP_ACT_MUL] = KERNEL_MANY, [OP_ADD] = KERNEL_MANY,
    [OP_PICK] = KERNEL_MANY,     [OP_SOFTCAP] = KERNEL_MANY,
};

static bool is_worth_timing(const struct kernel *kernel, const struct sample_case *wanted)
{
    bool load = wanted->load & loads[kernel->op] || !(kernel->load & loads[kernel->op]);
    return load && (wanted->k == wanted->v || !(kernel->k & kernel->v));
}

static void run_call(void *context, int phase, int part, int parts)
{
    const struct kernel_call *call = context;
    if (phase == 0 && call->prepare)
        call->prepare(call->args, part, parts);
    else
        call->run(call->args, part, parts);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median of a few repeats.
static double time_call(struct team *team, struct kernel_call call)
{
    struct team_work work = { run_call, &call, call.prepare ? 2 : 1, .divisible = true };
    double samples[REPEATS_MAX], total = 0;
    int count = 0;
    team_run(team, &work);
    while (count < REPEATS_MIN || (count < REPEATS_MAX && total < seconds_enough)) {
        double start = ceiling_now();
        team_run(team, &work);
        samples[count] = ceiling_now() - start;
        total += samples[count++];
    }
    qsort(samples, (size_t)count, sizeof *samples, compare);
    return samples[count / 2];
}

static json_t *bench_case(const struct kernel *kernel, const struct sample_case *wanted, struct team *team,
                          const struct ceiling *ceiling)
{
    struct sample sample;
    sample_open(&sample, kernel, wanted);
    struct kernel_call call = { kernel->run, sample_args_for(&sample, kernel), kernel->prepare };
    double seconds = time_call(team, call);
    double bytes = (double)sample.bytes_moved;
    bool int8 = kernel->int8 >> wanted->weight & 1;
    double by_memory = bytes / ceiling->bytes_per_s;
    double by_arithmetic = sample.flops / (int8 ? ceiling->int8_ops_per_s : ceiling->flops_per_s);
    bool memory = by_memory >= by_arithmetic;
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:s, s:f}", "name", kernel->name, "op",
                            op_word(kernel->op), "tokens", kernels_load_word(wanted->load), "formats",
                            kernels_format_words(kernel, wanted, &sample.arena), "seconds", seconds, "gb_per_s",
                            1e-9 * bytes / seconds, "gflop_per_s", 1e-9 * sample.flops / seconds, "bound",
                            memory ? "memory" : "arithmetic", "share", (memory ? by_memory : by_arithmetic) / seconds);
    sample_close(&sample);
    return row;
}

static void bench_all(const struct kernels_query *query, struct team *team, const struct ceiling *ceiling, json_t *rows,
                      struct strbuf *below)
{
    struct arena arena = { 0 };
    double total = kernels_count(query), done = 0;
    for (const struct kernel *kernel = kernels_next(query, NULL); kernel; kernel = kernels_next(query, kernel)) {
        struct sample_case cases[CHECK_CASES_MAX];
        const char *missing = kernels_missing(kernel, &query->device, &arena);
        int count = missing ? 0 : check_cases(kernel, cases);
        if (missing)
            strbuf_add_format(below, "%s not run: needs %s\n", kernel->name, missing);
        for (int i = 0; i < count; i++) {
            cases[i].size = SAMPLE_LARGE;
            cases[i].seed = query->seed;
            if (is_worth_timing(kernel, &cases[i]))
                json_array_append_new(rows, bench_case(kernel, &cases[i], team, ceiling));
            kernels_progress(query, (done + (double)i / count) / total);
        }
        kernels_progress(query, ++done / total);
    }
    arena_free(&arena);
}

static double real_at(const json_t *row, const char *key)
{
    return json_real_value(json_object_get(row, key));
}

static void cell_time(const json_t *row, const char *key, struct strbuf *out)
{
    strbuf_add_format(out, "%.3f ms", 1e3 * real_at(row, key));
}

static void cell_rate(const json_t *row, const char *key, struct strbuf *out)
{
    if (!strcmp(json_string_value(json_object_get(row, key)), "memory"))
        strbuf_add_format(out, "%.1f GB/s", real_at(row, "gb_per_s"));
    else
        strbuf_add_format(out, "%.1f GFLOP/s", real_at(row, "gflop_per_s"));
}

static void cell_share(const json_t *row, const char *key, struct strbuf *out)
{
    strbuf_add_format(out, "%.0f %%", 100 * real_at(row, key));
}

bool kernels_bench(const struct kernels_query *query, struct kernels_report *report, struct error *err)
{
    static const struct grid_column columns[] = {
        { "name", "name" },
        { "tokens", "tokens" },
        { "formats", "formats" },
        { "time", "seconds", cell_time },
        { "rate", "bound", cell_rate },
        { "of the ceiling", "share", cell_share },
        { 0 },
    };
    struct ceiling ceiling;
    int cores = query->device.cores < TEAM_THREADS_MAX ? query->device.cores : TEAM_THREADS_MAX;
    struct team *team = team_open(query->threads ? query->threads : cores, err);
    bool ok = team && ceiling_measure(&ceiling, team, &query->device, err);
    if (ok) {
        json_t *rows = json_array();
        int threads = team_size(team);
        double gb_per_s = 1e-9 * ceiling.bytes_per_s, gflop_per_s = 1e-9 * ceiling.flops_per_s;
        bench_all(query, team, &ceiling, rows, &report->below);
        report->json = json_pack("{s:s, s:i, s:{s:f, s:f}, s:o}", "device", query->device.word, "threads", threads,
                                 "ceiling", "gb_per_s", gb_per_s, "gflop_per_s", gflop_per_s, "kernels", rows);
        report->columns = columns;
        strbuf_add_format(&report->above, "ceiling with %d thread%s: %.1f GB/s read from memory, %.1f GFLOP/s\n",
                          threads, threads == 1 ? "" : "s", gb_per_s, gflop_per_s);
    }
    team_close(team);
    return ok;
}
