// SPDX-License-Identifier: Apache-2.0
// engine/kernels/bench.c: the roofline benchmark of kernels: the speed of each kernel beside the ceilings of the
// machine. A case is bound by memory or by arithmetic, whichever ceiling it would meet first; `share` is the
// fraction of that ceiling that it reaches.
#include <stdlib.h>

#include "base/clock.h"
#include "engine/kernels/ceiling.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/cuda.h"

enum { REPEATS_MIN = 3, REPEATS_MAX = 50 };
static const double seconds_enough = 0.2;

// The loads worth timing: for most ops one token takes no time to speak of.
static const enum kernel_load loads[OP_COUNT] = {
    [OP_EMBED] = KERNEL_PREFILL,     [OP_NORM] = KERNEL_PREFILL,        [OP_LINEAR] = KERNEL_ANY,
    [OP_ROPE] = KERNEL_PREFILL,      [OP_KV_WRITE] = KERNEL_PREFILL,    [OP_ATTENTION] = KERNEL_ANY,
    [OP_ACT_MUL] = KERNEL_PREFILL,   [OP_ADD] = KERNEL_PREFILL,         [OP_PICK] = KERNEL_PREFILL,
    [OP_SOFTCAP] = KERNEL_PREFILL,   [OP_PER_HEAD_LINEAR] = KERNEL_ANY, [OP_ROUTE] = KERNEL_PREFILL,
    [OP_EXPERTS] = KERNEL_ANY,       [OP_COMBINE] = KERNEL_PREFILL,     [OP_COPY] = KERNEL_PREFILL,
    [OP_TRANSFORM] = KERNEL_PREFILL, [OP_ALL_REDUCE] = KERNEL_PREFILL,  [OP_ALL_GATHER] = KERNEL_PREFILL,
};

static bool is_worth_timing(const struct kernel *kernel, const struct testcase_options *wanted)
{
    bool load = wanted->load & loads[kernel->op] || !(kernel->load & loads[kernel->op]);
    return load && (wanted->k == wanted->v || !(kernel->k & kernel->v));
}

// Steps that GPUs are timed on, in place of loads: sequences, rows of each, context.
static const struct {
    enum op_kind op;
    struct testcase_step step;
} gpu_steps[] = {
    { OP_ATTENTION, { 1, 1, 131072 } },   { OP_ATTENTION, { 64, 1, 4096 } },
    { OP_ATTENTION, { 128, 1, 8192 } },   { OP_ATTENTION, { 1, 512, 8192 } },
    { OP_ATTENTION, { 1, 8192, 8192 } },  { OP_LINEAR, { 1, 1, 1 } },
    { OP_LINEAR, { 64, 1, 1 } },          { OP_LINEAR, { 1, 2048, 2048 } },
    { OP_EXPERTS, { 1, 1, 1 } },          { OP_EXPERTS, { 64, 1, 1 } },
    { OP_EXPERTS, { 1, 2048, 2048 } },    { OP_PER_HEAD_LINEAR, { 1, 1, 1 } },
    { OP_PER_HEAD_LINEAR, { 64, 1, 1 } }, { OP_PER_HEAD_LINEAR, { 1, 2048, 2048 } },
};

struct bench {
    const struct kernels_query *query;
    struct thread_pool *pool; // on a GPU it packs weights
    struct nibble_ceiling ceiling;
    json_t *rows;
    struct strbuf *below;
    struct error *err;
};

static void run_call(void *context, int step, int chunk, int chunks)
{
    const struct kernel_call *call = context;
    if (step == 0 && call->prepare)
        call->prepare(call->args, chunk, chunks);
    else
        call->run(call->args, chunk, chunks);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median of a few repeats.
static double time_call(struct thread_pool *pool, struct kernel_call call)
{
    struct thread_pool_work work = { run_call, &call, call.prepare ? 2 : 1, .divisible = true };
    double samples[REPEATS_MAX], total = 0;
    int count = 0;
    thread_pool_run(pool, &work);
    while (count < REPEATS_MIN || (count < REPEATS_MAX && total < seconds_enough)) {
        double start = clock_now();
        thread_pool_run(pool, &work);
        samples[count] = clock_now() - start;
        total += samples[count++];
    }
    qsort(samples, (size_t)count, sizeof *samples, compare);
    return samples[count / 2];
}

static bool time_kernel(const struct bench *bench, const struct kernel *kernel, struct testcase *testcase,
                        double *seconds)
{
    testcase->pool = bench->pool;
    if (bench->query->cuda)
        return gpu_testcase_time(bench->query->cuda, kernel, testcase, seconds, bench->err);
    struct kernel_call call = { kernel->run, testcase_args_for(testcase, kernel), kernel->prepare };
    *seconds = time_call(bench->pool, call);
    return true;
}

// "64 x 1 of 4096" for a step of one shape: sequences, rows of each, and how long they are.
static const char *step_words(const struct testcase_options *wanted, struct arena *arena)
{
    const struct testcase_step *step = &wanted->step;
    return step->sequences ? arena_format(arena, "%d x %d of %d", step->sequences, step->rows_each, step->context)
                           : kernels_load_word(wanted->load, arena);
}

static bool bench_case(struct bench *bench, const struct kernel *kernel, const struct testcase_options *wanted)
{
    struct testcase testcase;
    const struct nibble_ceiling *ceiling = &bench->ceiling;
    double seconds;
    testcase_open(&testcase, kernel, wanted);
    bool ok = time_kernel(bench, kernel, &testcase, &seconds);
    if (ok) {
        double bytes = (double)testcase.bytes_moved;
        int planes = kernel_int8_planes(kernel, wanted->weight);
        double by_memory = bytes / nibble_ceiling_read(ceiling, bytes);
        double by_arithmetic = testcase.flops / (planes ? ceiling->int8_ops_per_s / planes : ceiling->flops_per_s);
        bool memory = by_memory >= by_arithmetic;
        json_t *row = json_pack(
            "{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:s, s:f}", "name", kernel->name, "op", op_word(kernel->op), "tokens",
            step_words(wanted, &testcase.arena), "formats", kernels_format_words(kernel, wanted, &testcase.arena),
            "seconds", seconds, "gb_per_s", 1e-9 * bytes / seconds, "gflop_per_s", 1e-9 * testcase.flops / seconds,
            "bound", memory ? "memory" : "arithmetic", "share", (memory ? by_memory : by_arithmetic) / seconds);
        json_array_append_new(bench->rows, row);
    }
    testcase_close(&testcase);
    return ok || fail_within(bench->err, "kernel %s", kernel->name);
}

// Whether a row is for steps of this shape.
static bool does_step(const struct kernel *kernel, const struct testcase_step *step)
{
    int rows = kernel_walks_sequences(kernel->op) ? step->rows_each : step->sequences * step->rows_each;
    return kernel->load >> kernel_load_of(rows) & 1;
}

// On a GPU an op that has steps is timed on each of them, whatever the load of the case.
static bool bench_wanted(struct bench *bench, const struct kernel *kernel, struct testcase_options wanted)
{
    bool has_steps = false;
    wanted.size = TESTCASE_LARGE;
    wanted.seed = bench->query->seed;
    for (size_t i = 0; i < sizeof gpu_steps / sizeof *gpu_steps && bench->query->cuda; i++) {
        if (gpu_steps[i].op != kernel->op)
            continue;
        has_steps = true;
        wanted.step = gpu_steps[i].step;
        bool again = kernel->load & KERNEL_DECODE && !(wanted.load & KERNEL_DECODE); // a row of both comes here twice
        if (!again && does_step(kernel, &wanted.step) && !bench_case(bench, kernel, &wanted))
            return false;
    }
    return has_steps || bench_case(bench, kernel, &wanted);
}

static bool bench_all(struct bench *bench)
{
    struct arena arena = { 0 };
    const struct kernels_query *query = bench->query;
    double total = kernels_count(query), done = 0;
    bool ok = true;
    for (const struct kernel *kernel = kernels_next(query, NULL); kernel && ok; kernel = kernels_next(query, kernel)) {
        struct testcase_options cases[CHECK_CASES_MAX];
        const char *missing = kernels_missing(kernel, &query->device, &arena);
        int count = missing ? 0 : check_cases(kernel, cases);
        if (missing)
            strbuf_add_format(bench->below, "%s not run: needs %s\n", kernel->name, missing);
        for (int i = 0; i < count && ok; i++) {
            ok = !is_worth_timing(kernel, &cases[i]) || bench_wanted(bench, kernel, cases[i]);
            kernels_progress(query, (done + (double)i / count) / total);
        }
        kernels_progress(query, ++done / total);
    }
    arena_free(&arena);
    return ok;
}

static double real_at(const json_t *row, const char *key) { return json_real_value(json_object_get(row, key)); }

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
    struct bench bench = { .query = query, .below = &report->below, .err = err };
    int cores = query->device.cores < THREAD_POOL_MAX ? query->device.cores : THREAD_POOL_MAX;
    if (!(bench.pool = thread_pool_open(query->threads ? query->threads : cores, err))
        || !(query->cuda ? ceiling_measure_cuda(&bench.ceiling, query->cuda, err)
                         : ceiling_measure(&bench.ceiling, bench.pool, &query->device, err)))
        return thread_pool_close(bench.pool), false;
    memory_disable_trim(); // test cases are large, and alike
    bench.rows = json_array();
    bool ok = bench_all(&bench);
    int threads = query->cuda ? 0 : thread_pool_size(bench.pool);
    double gb_per_s = 1e-9 * bench.ceiling.bytes_per_s, gflop_per_s = 1e-9 * bench.ceiling.flops_per_s;
    report->json = json_pack("{s:s, s:i, s:{s:f, s:f}, s:o}", "device", query->device.word, "threads", threads,
                             "ceiling", "gb_per_s", gb_per_s, "gflop_per_s", gflop_per_s, "kernels", bench.rows);
    report->columns = columns;
    if (query->cuda)
        strbuf_add_format(&report->above, "ceiling of %s: %.0f GB/s copied in its memory, %.0f GFLOP/s of bfloat16\n",
                          query->device.name, gb_per_s, gflop_per_s);
    else
        strbuf_add_format(&report->above, "ceiling with %d thread%s: %.1f GB/s read from memory, %.1f GFLOP/s\n",
                          threads, threads == 1 ? "" : "s", gb_per_s, gflop_per_s);
    thread_pool_close(bench.pool);
    return ok;
}
