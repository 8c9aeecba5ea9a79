// SPDX-License-Identifier: Apache-2.0
// engine/kernels/test.c: the conformance test of kernels: every kernel that can run on this machine is compared with
// the reference of its op.
#include <math.h>

#include "engine/kernels/kernels.h"
#include "engine/kernels/cuda.h"

// Seeds, one after the other.
static int rounds(const struct kernels_query *query) { return query->quick ? 1 : 4; }

struct verdict {
    int cases;
    double error, tolerance;
    struct strbuf failure; // the first one
    bool dead;             // the device cannot be used any more
};

static void add_fused(struct strbuf *out, uint32_t fuses)
{
    static const struct {
        uint32_t bit;
        enum op_kind op;
    } neighbours[] = {
        { KERNEL_FUSES_NORM, OP_NORM }, { KERNEL_FUSES_ACT_MUL, OP_ACT_MUL },     { KERNEL_FUSES_ADD, OP_ADD },
        { KERNEL_FUSES_ROPE, OP_ROPE }, { KERNEL_FUSES_TRANSFORM, OP_TRANSFORM },
    };
    for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++)
        if (fuses & neighbours[i].bit)
            strbuf_add_format(out, " with %s", op_word(neighbours[i].op));
}

static void print_failure(const struct kernel *kernel, const struct testcase_options *wanted,
                          const struct check_result *result, struct strbuf *out)
{
    struct arena arena = { 0 };
    strbuf_add_format(out, "%s tokens, %s", kernels_load_word(wanted->load, &arena),
                      kernels_format_words(kernel, wanted, &arena));
    add_fused(out, wanted->fuses);
    strbuf_add_format(out, ", --seed %llu", (unsigned long long)wanted->seed);
    if (result->flaw)
        strbuf_add_format(out, ": %s", result->flaw);
    if (result->trouble.text[0])
        strbuf_add_format(out, ": %s", result->trouble.text);
    arena_free(&arena);
}

static void test_case(const struct kernel *kernel, const struct testcase_options *wanted,
                      const struct check_device *device, struct verdict *verdict)
{
    struct check_result result;
    if (verdict->dead)
        return;
    check_run(kernel, wanted, device, &result);
    verdict->cases++;
    verdict->error = result.error > verdict->error ? result.error : verdict->error;
    verdict->tolerance = result.tolerance > verdict->tolerance ? result.tolerance : verdict->tolerance;
    verdict->dead = result.trouble.text[0];
    if (!result.ok && !verdict->failure.len)
        print_failure(kernel, wanted, &result, &verdict->failure);
}

static void test_kernel(const struct kernel *kernel, const struct kernels_query *query, struct verdict *verdict)
{
    struct testcase_options cases[CHECK_CASES_MAX];
    struct kernels_cuda on_gpu = kernels_cuda_on(query->cuda);
    uint32_t fused[CHECK_FUSED_MAX];
    int count = check_cases(kernel, cases), sets = check_fused(kernel, fused);
    if (!count)
        strbuf_add_text(&verdict->failure, "no head size is common to what it lists");
    for (int i = 0; i < count * sets; i++)
        for (int round = 0; round < rounds(query); round++) {
            struct testcase_options wanted = cases[i / sets];
            wanted.size = query->quick ? TESTCASE_SMALL : TESTCASE_VARIED;
            wanted.fuses = fused[i % sets];
            wanted.seed = query->seed + (uint64_t)round;
            test_case(kernel, &wanted, &on_gpu.device, verdict);
        }
}

static json_t *report_kernel(const struct kernel *kernel, const struct verdict *verdict)
{
    bool ok = !verdict->failure.len;
    json_t *error = isfinite(verdict->error) ? json_real(verdict->error) : json_null();
    return json_pack("{s:s, s:i, s:o, s:f, s:s, s:s?}", "name", kernel->name, "cases", verdict->cases, "error", error,
                     "tolerance", verdict->tolerance, "result", ok ? "ok" : "FAILED", "note",
                     ok ? NULL : verdict->failure.data);
}

static json_t *leave_out(const struct kernel *kernel, const char *missing)
{
    return json_pack("{s:s, s:i, s:n, s:n, s:s, s:o}", "name", kernel->name, "cases", 0, "error", "tolerance", "result",
                     "not run", "note", json_sprintf("needs %s", missing));
}

bool kernels_test(const struct kernels_query *query, struct kernels_report *report, struct error *err)
{
    static const struct grid_column columns[] = {
        { "name", "name" },
        { "cases", "cases" },
        { "largest error", "error" },
        { "tolerance", "tolerance" },
        { "result", "result" },
        { "note", "note" },
        { 0 },
    };
    struct arena arena = { 0 };
    json_t *rows = json_array();
    const struct kernel *killer = NULL; // of the device
    int total = kernels_count(query), left_out = 0;
    (void)err;
    for (const struct kernel *kernel = kernels_next(query, NULL); kernel; kernel = kernels_next(query, kernel)) {
        const char *missing = kernels_missing(kernel, &query->device, &arena);
        struct verdict verdict = { 0 };
        if (!missing && killer)
            missing = arena_format(&arena, "the GPU, which %s has left unusable", killer->name);
        left_out += missing != NULL;
        if (!missing)
            test_kernel(kernel, query, &verdict);
        report->failed += verdict.failure.len > 0;
        killer = verdict.dead ? kernel : killer;
        json_array_append_new(rows, missing ? leave_out(kernel, missing) : report_kernel(kernel, &verdict));
        strbuf_free(&verdict.failure);
        kernels_progress(query, (double)json_array_size(rows) / total);
    }
    int passed = total - report->failed - left_out;
    report->json = json_pack("{s:s, s:I, s:i, s:i, s:i, s:o}", "device", query->device.word, "seed",
                             (json_int_t)query->seed, "passed", passed, "failed", report->failed, "not_run", left_out,
                             "kernels", rows);
    report->columns = columns;
    strbuf_add_format(&report->above, "seeds %llu to %llu\n", (unsigned long long)query->seed,
                      (unsigned long long)query->seed + (unsigned)rounds(query) - 1);
    strbuf_add_format(&report->below, "%d passed, %d failed, %d not run\n", passed, report->failed, left_out);
    arena_free(&arena);
    return true;
}
