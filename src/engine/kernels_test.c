// SPDX-License-Identifier: Apache-2.0
// engine/kernels_test.c: every kernel that can run here against the reference of its op.
#include <math.h>

#include "engine/kernels.h"

enum { ROUNDS = 4 }; // seeds, one after the other

struct verdict {
    int cases;
    double error, tolerance;
    struct strbuf failure; // the first one
};

static void test_case(const struct kernel *kernel, const struct sample_case *wanted, struct verdict *verdict)
{
    struct arena arena = { 0 };
    struct check_result result;
    check_run(kernel, wanted, &result);
    verdict->cases++;
    verdict->error = result.error > verdict->error ? result.error : verdict->error;
    verdict->tolerance = result.tolerance;
    if (!result.ok && !verdict->failure.len)
        strbuf_add_format(&verdict->failure, "%s tokens, %s, --seed %llu%s%s", kernels_load_word(wanted->load),
                          kernels_format_words(kernel, wanted, &arena), (unsigned long long)wanted->seed,
                          result.flaw ? ": " : "", result.flaw ? result.flaw : "");
    arena_free(&arena);
}

static json_t *test_kernel(const struct kernel *kernel, uint64_t seed, int *failed)
{
    struct sample_case cases[CHECK_CASES_MAX];
    struct verdict verdict = { 0 };
    int count = check_cases(kernel, cases);
    if (!count)
        strbuf_add_text(&verdict.failure, "no head size is common to what it lists");
    for (int i = 0; i < count; i++)
        for (int round = 0; round < ROUNDS; round++) {
            cases[i].seed = seed + (uint64_t)round;
            test_case(kernel, &cases[i], &verdict);
        }
    bool ok = !verdict.failure.len;
    *failed += !ok;
    json_t *error = isfinite(verdict.error) ? json_real(verdict.error) : json_null();
    json_t *row = json_pack("{s:s, s:i, s:o, s:f, s:s, s:s?}", "name", kernel->name, "cases", verdict.cases, "error",
                            error, "tolerance", verdict.tolerance, "result", ok ? "ok" : "FAILED", "note",
                            ok ? NULL : verdict.failure.data);
    strbuf_free(&verdict.failure);
    return row;
}

static json_t *leave_out(const struct kernel *kernel, const char *missing)
{
    return json_pack("{s:s, s:i, s:n, s:n, s:s, s:o}", "name", kernel->name, "cases", 0, "error", "tolerance", "result",
                     "not run", "note", json_sprintf("needs %s", missing));
}

bool kernels_test(const struct kernels_query *query, struct kernels_report *report, struct error *err)
{
    static const struct grid_column columns[] = {
        { "name", "name" },           { "cases", "cases" },   { "largest error", "error" },
        { "tolerance", "tolerance" }, { "result", "result" }, { "note", "note" }, { 0 },
    };
    struct arena arena = { 0 };
    json_t *rows = json_array();
    int total = kernels_count(query), left_out = 0;
    (void)err;
    for (const struct kernel *kernel = kernels_next(query, NULL); kernel; kernel = kernels_next(query, kernel)) {
        const char *missing = kernels_missing(kernel, &query->device, &arena);
        left_out += missing != NULL;
        json_array_append_new(
            rows, missing ? leave_out(kernel, missing) : test_kernel(kernel, query->seed, &report->failed));
        kernels_progress(query, (double)json_array_size(rows) / total);
    }
    int passed = total - report->failed - left_out;
    report->json = json_pack("{s:s, s:I, s:i, s:i, s:i, s:o}", "device", query->device.word, "seed",
                             (json_int_t)query->seed, "passed", passed, "failed", report->failed, "not_run", left_out,
                             "kernels", rows);
    report->columns = columns;
    strbuf_add_format(&report->above, "seeds %llu to %llu\n", (unsigned long long)query->seed,
                      (unsigned long long)query->seed + ROUNDS - 1);
    strbuf_add_format(&report->below, "%d passed, %d failed, %d not run\n", passed, report->failed, left_out);
    arena_free(&arena);
    return true;
}
