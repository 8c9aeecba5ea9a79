// SPDX-License-Identifier: Apache-2.0
// tools/bench_report.c: reports of `nibble bench` as a table and as JSON, beside the machine's ceilings (roofline).
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "tools/bench.h"
#include "cli/cli.h"

const char *bench_kind_word(enum bench_kind kind) { return kind == BENCH_PREFILL ? "prefill" : "decode"; }

// ---- figures ------------------------------------------------------------------------------------------------------

static const double CACHED = 1.1; // read so much faster than from memory: a cache holds part of it

// Statistics of a case that has samples.
struct bench_summary {
    double median, low, high; // tokens per second
    double limit;             // the same at the machine's ceiling
    const char *bound;        // which ceiling that is: "memory", "cache" or "arithmetic"
};

// The roofline in tokens per second: of a decode step halfway through the answer, or of the whole prompt.
static void find_limit(const struct bench_case *measured, struct bench_summary *out)
{
    const struct nibble_ceiling *ceiling = &measured->subject->ceiling;
    const struct nibble_plan *plan = nibble_engine_plan(measured->subject->engine);
    bool prefill = measured->kind == BENCH_PREFILL;
    int depth = prefill ? measured->depth : measured->depth + measured->new / 2;
    int tokens = prefill ? measured->prompt : 1;
    struct nibble_cost cost;
    nibble_plan_cost(plan, measured->batch, depth, tokens, &cost);
    double bandwidth = nibble_ceiling_read(ceiling, cost.read_bytes), by_memory = cost.read_bytes / bandwidth;
    double by_arithmetic = cost.flops / ceiling->flops_per_s + cost.int8_ops / ceiling->int8_ops_per_s;
    bool cached = bandwidth > CACHED * ceiling->bytes_per_s;
    out->bound = by_memory <= by_arithmetic ? "arithmetic" : cached ? "cache" : "memory";
    out->limit = (double)tokens * measured->batch / fmax(by_memory, by_arithmetic);
}

static struct bench_summary summarise(const struct bench_case *measured)
{
    struct bench_summary summary;
    int count = measured->sample_count;
    double *sorted = memory_new((size_t)count, sizeof *sorted);
    memcpy(sorted, measured->samples, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, cli_compare_reals);
    summary.median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    summary.low = sorted[0];
    summary.high = sorted[count - 1];
    free(sorted);
    find_limit(measured, &summary);
    return summary;
}

// ---- the machine --------------------------------------------------------------------------------------------------

static json_t *json_of_reading(const struct nibble_ceiling *ceiling)
{
    json_t *list = json_array();
    for (int size = 0; size < NIBBLE_CEILING_SIZES; size++)
        json_array_append_new(list,
                              json_pack("{s:I, s:f}", "bytes", (json_int_t)NIBBLE_CEILING_BYTES << 2 * size, "gb_per_s",
                                        1e-9 * ceiling->read_bytes_per_s[size]));
    return list;
}

static json_t *json_of_ceiling(const struct bench_subject *subject)
{
    const struct nibble_ceiling *ceiling = &subject->ceiling;
    json_t *json = json_pack("{s:f, s:f}", "gb_per_s", 1e-9 * ceiling->bytes_per_s, "gflop_per_s",
                             1e-9 * ceiling->flops_per_s);
    if (subject->threads) {
        json_object_set_new(json, "threads", json_integer(subject->threads));
        json_object_set_new(json, "int8_gop_per_s", json_real(1e-9 * ceiling->int8_ops_per_s));
        json_object_set_new(json, "read", json_of_reading(ceiling));
    }
    return json;
}

// The device that computed, as `nibble env` describes it: the CPU, or the first GPU of this name.
static const json_t *find_device(const json_t *environment, const struct bench_subject *subject)
{
    const json_t *gpus = json_object_get(json_object_get(environment, "cuda"), "devices"), *gpu;
    const char *name = nibble_engine_device(subject->engine);
    size_t index;
    json_array_foreach (gpus, index, gpu)
        if (!subject->threads && !strcmp(json_string_value(json_object_get(gpu, "name")), name))
            return gpu;
    return json_object_get(environment, "cpu");
}

// A new reference: the device, and each number of threads with what was measured for it.
static json_t *describe_machine(const struct bench_run *bench)
{
    struct nibble_text text = { 0 };
    nibble_environment(&text, true);
    json_t *environment = json_loadb(text.data, text.len, 0, NULL);
    json_t *machine = json_deep_copy(find_device(environment, bench->subjects)), *ceilings = json_array();
    for (int i = 0; i < bench->subject_count; i++) {
        const struct bench_subject *subject = &bench->subjects[i];
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen = seen || bench->subjects[j].threads == subject->threads;
        if (!seen)
            json_array_append_new(ceilings, json_of_ceiling(subject));
    }
    char date[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    json_object_set_new(machine, "date", json_string(date));
    json_object_set_new(machine, "version", json_string(nibble_version()));
    json_object_set_new(machine, "ceilings", ceilings);
    json_decref(environment);
    free(text.data);
    return machine;
}

void bench_print_machine(const struct bench_run *bench, struct strbuf *out)
{
    json_t *machine = describe_machine(bench), *ceiling;
    size_t index;
    bool gpu = !bench->subjects->threads;
    strbuf_add_format(out, "%s, %lld %s, %.10s, nibble %s\n", json_string_value(json_object_get(machine, "name")),
                      (long long)json_integer_value(json_object_get(machine, gpu ? "multiprocessors" : "cores")),
                      gpu ? "multiprocessors" : "cores", json_string_value(json_object_get(machine, "date")),
                      nibble_version());
    json_array_foreach (json_object_get(machine, "ceilings"), index, ceiling) {
        long long threads = json_integer_value(json_object_get(ceiling, "threads"));
        double gb_per_s = json_real_value(json_object_get(ceiling, "gb_per_s"));
        double gflop_per_s = json_real_value(json_object_get(ceiling, "gflop_per_s"));
        if (gpu)
            strbuf_add_format(out, "ceiling: %.0f GB/s copied in its memory, %.0f GFLOP/s of bfloat16\n", gb_per_s,
                              gflop_per_s);
        else
            strbuf_add_format(out, "ceiling with %lld thread%s: %.1f GB/s read, %.1f GFLOP/s, %.1f GOP/s of int8\n",
                              threads, threads == 1 ? "" : "s", gb_per_s, gflop_per_s,
                              json_real_value(json_object_get(ceiling, "int8_gop_per_s")));
    }
    json_decref(machine);
}

// ---- table and JSON -----------------------------------------------------------------------------------------------

void bench_print_table(const struct bench_run *bench, struct strbuf *out)
{
    int width = (int)strlen("format");
    for (int i = 0; i < bench->subject_count; i++)
        if ((int)strlen(bench->subjects[i].format) > width)
            width = (int)strlen(bench->subjects[i].format);
    bench_print_machine(bench, out);
    strbuf_add_format(out, "%-7s  %6s  %5s  %6s  %5s  %-*s%s  %9s  %17s  %s\n", "kind", "prompt", "new", "depth",
                      "batch", width, "format", bench->subjects->threads ? "  threads" : "", "t/s", "lowest - highest",
                      "of the ceiling");
    for (int i = 0; i < bench->case_count; i++) {
        const struct bench_case *measured = &bench->cases[i];
        if (!measured->sample_count)
            continue;
        struct bench_summary summary = summarise(measured);
        char spread[64], threads[16] = "";
        snprintf(spread, sizeof spread, "%.2f - %.2f", summary.low, summary.high);
        if (measured->subject->threads)
            snprintf(threads, sizeof threads, "  %7d", measured->subject->threads);
        strbuf_add_format(out, "%-7s  %6d  %5d  %6d  %5d  %-*s%s  %9.2f  %17s  %.0f %% (%s)\n",
                          bench_kind_word(measured->kind), measured->prompt, measured->new, measured->depth,
                          measured->batch, width, measured->subject->format, threads, summary.median, spread,
                          100 * summary.median / summary.limit, summary.bound);
    }
}

static json_t *json_of_case(const struct bench_case *measured)
{
    struct bench_summary summary = summarise(measured);
    json_t *samples = json_array();
    for (int i = 0; i < measured->sample_count; i++)
        json_array_append_new(samples, json_real(measured->samples[i]));
    json_t *row = json_pack("{s:s, s:i, s:i, s:i, s:i, s:s, s:f, s:o, s:f, s:f, s:s}", "kind",
                            bench_kind_word(measured->kind), "prompt", measured->prompt, "new", measured->new, "depth",
                            measured->depth, "batch", measured->batch, "kv_cache_dtype", measured->subject->format,
                            "median", summary.median, "samples", samples, "ceiling", summary.median / summary.limit,
                            "limit", summary.limit, "bound", summary.bound);
    if (measured->subject->threads)
        json_object_set_new(row, "threads", json_integer(measured->subject->threads));
    return row;
}

void bench_print_json(const struct bench_run *bench, struct strbuf *out)
{
    json_t *results = json_array();
    for (int i = 0; i < bench->case_count; i++)
        if (bench->cases[i].sample_count)
            json_array_append_new(results, json_of_case(&bench->cases[i]));
    json_t *root = json_pack("{s:o, s:s, s:b, s:o}", "machine", describe_machine(bench), "model", bench->model,
                             "complete", !bench->stopped, "results", results);
    cli_add_json(out, root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}
