// SPDX-License-Identifier: Apache-2.0
// tools/bench.c: how fast a model runs here: what the command line says is measured, and where the result goes.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tools/bench.h"
#include "tools/cache_formats.h"
#include "cli/cache_options.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "tools/report_page.h"

enum { LIST_MAX = 64, SUBJECTS_MAX = 64, CASES_MAX = 4096, TOKENS_MAX = 1 << 24, THREADS_MAX = 256, REPEATS = 5 };

struct numbers {
    int items[LIST_MAX];
    int count;
};

struct request {
    struct strbuf prompt, new, depth, batch, threads; // as they were typed; to be freed
    struct option_texts dtypes;
    struct cache_options cache;
    long long repeats;
    const char *html;
    bool json, ops, no_self_test;
};

// What the request means.
struct wishes {
    struct numbers prompt, new, depth, batch, threads;
    struct cache_formats formats;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct nibble_error *error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    error->usage = true;
    return false;
}

// ---- lists --------------------------------------------------------------------------------------------------------

// "0,4096 8192" and the like. Nothing typed: the one number that is meant then.
static bool read_numbers(const char *flag, const struct strbuf *typed, int low, int high, int otherwise,
                         struct numbers *out, struct nibble_error *error)
{
    static const char between[] = ", ";
    const char *at = strbuf_text(typed);
    *out = (struct numbers){ .items = { otherwise }, .count = !*at };
    for (at += strspn(at, between); *at; at += strspn(at, between)) {
        char *end;
        errno = 0;
        long number = strtol(at, &end, 10);
        if (end == at || errno || number < low || number > high || (*end && !strchr(between, *end)))
            return wrong(error, "%s takes whole numbers from %d to %d, such as 1,8, not \"%.*s\"", flag, low, high,
                         (int)strcspn(at, between), at);
        if (out->count == LIST_MAX)
            return wrong(error, "%s takes up to %d numbers", flag, LIST_MAX);
        out->items[out->count++] = (int)number;
        at = end;
    }
    return out->count || wrong(error, "%s takes whole numbers, such as 1,8, and got none", flag);
}

static bool read_wishes(const struct request *request, struct wishes *out, struct nibble_error *error)
{
    if (request->ops && (request->json || request->html))
        return wrong(error, "--ops prints a table of its own and cannot be combined with %s",
                     request->json ? "--json" : "--html");
    return read_numbers("-p", &request->prompt, 0, TOKENS_MAX, 512, &out->prompt, error)
        && read_numbers("-n", &request->new, 0, TOKENS_MAX, 128, &out->new, error)
        && read_numbers("-d", &request->depth, 0, TOKENS_MAX, 0, &out->depth, error)
        && read_numbers("--batch", &request->batch, 1, BENCH_BATCH_MAX, 1, &out->batch, error)
        && read_numbers("--threads", &request->threads, 0, THREADS_MAX, 0, &out->threads, error)
        && cache_formats_read(&request->dtypes, &out->formats, error);
}

// ---- what is measured ---------------------------------------------------------------------------------------------

// The same case for every engine, one after the other: they are the ones that are compared.
static void add_case(struct bench *bench, struct bench_case wanted)
{
    size_t count = (size_t)bench->case_count + (size_t)bench->subject_count;
    bench->cases = memory_grow(bench->cases, count, sizeof *bench->cases);
    for (int i = 0; i < bench->subject_count; i++) {
        wanted.subject = &bench->subjects[i];
        wanted.samples = memory_new((size_t)bench->repeats, sizeof *wanted.samples);
        wanted.ops = bench->ops ? memory_new(1, sizeof *wanted.ops) : NULL;
        bench->cases[bench->case_count++] = wanted;
    }
}

static void add_cases_at(struct bench *bench, const struct wishes *wishes, int depth)
{
    struct bench_case prefill = { .kind = BENCH_PREFILL, .depth = depth, .batch = 1 };
    struct bench_case decode = { .kind = BENCH_DECODE, .depth = depth };
    for (int i = 0; i < wishes->prompt.count; i++)
        if ((prefill.prompt = wishes->prompt.items[i]))
            add_case(bench, prefill);
    for (int i = 0; i < wishes->new.count; i++)
        for (int j = 0; j < wishes->batch.count; j++) {
            decode.batch = wishes->batch.items[j];
            if ((decode.new = wishes->new.items[i]))
                add_case(bench, decode);
        }
}

static bool choose_cases(struct bench *bench, const struct wishes *wishes, struct nibble_error *error)
{
    int subjects = wishes->formats.count * wishes->threads.count;
    int kinds = wishes->prompt.count + wishes->new.count * wishes->batch.count;
    if (subjects > SUBJECTS_MAX || wishes->depth.count * kinds > CASES_MAX / subjects)
        return wrong(error,
                     "%d combinations of format and threads, times %d of the rest, are too many: up to %d, and "
                     "%d in all, are possible",
                     subjects, wishes->depth.count * kinds, SUBJECTS_MAX, CASES_MAX);
    bench->subject_count = subjects;
    bench->subjects = memory_new((size_t)subjects, sizeof *bench->subjects);
    for (int i = 0; i < subjects; i++)
        bench->subjects[i] = (struct bench_subject){ .format = wishes->formats.items[i % wishes->formats.count],
                                                     .threads = wishes->threads.items[i / wishes->formats.count] };
    for (int i = 0; i < wishes->depth.count; i++)
        add_cases_at(bench, wishes, wishes->depth.items[i]);
    return bench->case_count || wrong(error, "-p 0 and -n 0 leave nothing to measure");
}

// ---- engines ------------------------------------------------------------------------------------------------------

// What an engine must have room for.
static void find_needs(const struct bench *bench, int *length, int *sequences)
{
    *length = *sequences = 1;
    for (int i = 0; i < bench->case_count; i++) {
        int wanted = bench_case_length(&bench->cases[i]);
        *length = wanted > *length ? wanted : *length;
        *sequences = bench->cases[i].batch > *sequences ? bench->cases[i].batch : *sequences;
    }
}

// A cache too small would have sequences wait for each other, which is not what is to be measured.
static bool check_room(const struct bench_subject *subject, int length, int sequences, struct nibble_error *error)
{
    struct nibble_scheduler_stats stats;
    nibble_scheduler_stats(subject->scheduler, &stats);
    size_t wanted = (size_t)length * (size_t)sequences;
    return stats.cache_tokens >= wanted
        || cli_trouble(error,
                       "%d sequences of %d tokens do not fit: the cache (%s) has a capacity of %zu tokens, and %zu "
                       "are needed; raise --kv-cache-memory-bytes, or lower --batch, -d, -p or -n",
                       sequences, length, subject->format, stats.cache_tokens, wanted);
}

// What is left open (0) is chosen to fit.
static bool check_limits(const struct nibble_options *options, int length, int sequences, struct nibble_error *error)
{
    const struct {
        const char *flag;
        int value, needed;
    } limits[] = {
        { "--max-model-len", options->max_model_len, length },
        { "--max-num-seqs", options->max_num_seqs, sequences },
        { "--max-num-batched-tokens", options->batch_tokens, sequences },
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value && limits[i].value < limits[i].needed)
            return cli_trouble(error, "%s %d is too low: %d sequences of %d tokens are to be measured, which takes %d",
                               limits[i].flag, limits[i].value, sequences, length, limits[i].needed);
    return true;
}

static bool measure_ceiling(struct bench *bench, struct bench_subject *subject, struct nibble_error *error)
{
    for (const struct bench_subject *other = bench->subjects; other < subject; other++)
        if (other->threads == subject->threads) {
            subject->ceiling = other->ceiling;
            return true;
        }
    return nibble_engine_ceiling(subject->engine, &subject->ceiling, error);
}

static struct nibble_options options_of(const struct bench *bench, const struct bench_subject *subject,
                                        const struct request *request)
{
    int length, sequences;
    find_needs(bench, &length, &sequences);
    struct nibble_options options = { .threads = subject->threads, .no_self_test = request->no_self_test };
    cache_options_apply(&request->cache, &options);
    options.kv_cache_dtype = subject->format;
    options.max_model_len = options.max_model_len ? options.max_model_len : length;
    // One more than run at once: prompts that are new in every round then do not drive the depths out of the cache.
    options.max_num_seqs = options.max_num_seqs ? options.max_num_seqs : sequences + 1;
    return options;
}

// All of them, before the first is loaded.
static bool check_subjects(const struct bench *bench, const struct nibble_checkpoint *checkpoint,
                           const struct request *request, struct nibble_error *error)
{
    int length, sequences;
    find_needs(bench, &length, &sequences);
    for (int i = 0; i < bench->subject_count; i++) {
        struct nibble_options options = options_of(bench, &bench->subjects[i], request);
        if (!check_limits(&options, length, sequences, error) || !nibble_engine_check(checkpoint, &options, error))
            return false;
    }
    return true;
}

static bool open_subject(struct bench *bench, struct bench_subject *subject, const struct nibble_checkpoint *checkpoint,
                         const struct request *request, struct nibble_error *error)
{
    int length, sequences;
    find_needs(bench, &length, &sequences);
    struct cli_progress progress = { .label = "loading weights", .shown = -1 };
    struct nibble_options options = options_of(bench, subject, request);
    subject->trace = (struct nibble_trace){ .op = bench_record_op, .context = subject };
    options.trace = bench->ops ? &subject->trace : NULL;
    options.progress = cli_progress_show;
    options.calibrating = cli_calibrating_show;
    options.progress_context = &progress;
    subject->engine = nibble_engine_open(checkpoint, &options, error);
    if (!subject->engine)
        return false;
    subject->threads = nibble_engine_threads(subject->engine);
    subject->scheduler = nibble_scheduler_open(subject->engine, &(struct nibble_scheduler_options){ 0 });
    struct nibble_text plan = { 0 };
    nibble_plan_print(nibble_engine_plan(subject->engine), NIBBLE_PLAN_SHORT, 0, &plan);
    cli_say("%s", plan.data);
    free(plan.data);
    return check_room(subject, length, sequences, error) && measure_ceiling(bench, subject, error);
}

static bool open_subjects(struct bench *bench, const struct nibble_checkpoint *checkpoint,
                          const struct request *request, struct nibble_error *error)
{
    for (int i = 0; i < bench->subject_count; i++)
        if (!open_subject(bench, &bench->subjects[i], checkpoint, request, error))
            return false;
    return true;
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < bench->subject_count; i++) {
        nibble_scheduler_close(bench->subjects[i].scheduler);
        nibble_engine_close(bench->subjects[i].engine);
    }
    for (int i = 0; i < bench->case_count; i++) {
        free(bench->cases[i].samples);
        free(bench->cases[i].ops);
    }
    free(bench->subjects);
    free(bench->cases);
}

// ---- the command --------------------------------------------------------------------------------------------------

static bool has_samples(const struct bench *bench)
{
    for (int i = 0; i < bench->case_count; i++)
        if (bench->cases[i].sample_count)
            return true;
    return false;
}

static bool report(const struct bench *bench, const struct request *request, struct output_file *page,
                   struct nibble_error *error)
{
    if (!has_samples(bench))
        return cli_trouble(error, "stopped before anything was measured");
    if (bench->stopped)
        cli_say("stopped: some figures come from fewer repeats, or are missing\n");
    struct strbuf table = { 0 }, json = { 0 };
    (bench->ops ? bench_ops_print : bench_print_table)(bench, &table);
    bench_print_json(bench, &json);
    const struct strbuf *text = request->json ? &json : &table;
    bool ok = report_page_finish(page, json.data, error) && cli_write(text->data, text->len, error);
    strbuf_free(&table);
    strbuf_free(&json);
    return ok;
}

static int run(const char *model, const struct request *request)
{
    struct bench bench = { .repeats = (int)request->repeats, .ops = request->ops };
    struct strbuf name = { 0 }; // whatever bytes a path has, the report is text
    strbuf_add_clean(&name, bytes_of(model));
    bench.model = strbuf_text(&name);
    struct wishes wishes = { 0 };
    struct output_file page = { 0 };
    struct nibble_error error = { 0 };
    struct nibble_checkpoint *checkpoint = NULL;
    bool ok = read_wishes(request, &wishes, &error) && choose_cases(&bench, &wishes, &error)
        && output_file_open(&page, request->html, "--html", &error)
        && (checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, &error))
        && check_subjects(&bench, checkpoint, request, &error) && open_subjects(&bench, checkpoint, request, &error)
        && bench_measure(&bench, &error) && report(&bench, request, &page, &error);
    int status = ok ? EXIT_DONE : cli_fail(&error, request->json);
    output_file_close(&page);
    bench_close(&bench);
    nibble_checkpoint_close(checkpoint);
    cache_formats_free(&wishes.formats);
    strbuf_free(&name);
    return status;
}

int command_bench(int argc, char **argv)
{
    struct request request = { .repeats = REPEATS };
    const struct option_row options[] = {
        { "-p", OPTION_LIST, &request.prompt, "N,...", "prefill: tokens of one prompt; 0: none (512)" },
        { "-n", OPTION_LIST, &request.new, "N,...", "decode: tokens drawn in each sequence; 0: none (128)" },
        { "-d", OPTION_LIST, &request.depth, "N,...", "tokens that are in the cache before (0)" },
        { "--batch", OPTION_LIST, &request.batch, "N,...", "sequences that decode at once (1)" },
        { "-r", OPTION_INT, &request.repeats, "N", "timed rounds, after one that is not (5)", 1, BENCH_REPEATS_MAX },
        { "--kv-cache-dtype", OPTION_TEXTS, &request.dtypes, "F,...",
          "cache formats; one with ranges apart: nvfp4 0-3:fp8,4-:nvfp4" },
        CACHE_FURTHER_ROWS(request.cache),
        SERVING_OPTION_ROWS(request.cache),
        RANKS_OPTION_ROW(request.cache),
        { "--threads", OPTION_LIST, &request.threads, "N,...", "threads; 0: all cores (0)" },
        { "--no-self-test", OPTION_FLAG, &request.no_self_test, NULL, "do not check the kernels first" },
        { "--ops", OPTION_FLAG, &request.ops, NULL, "a roofline table of each case's ops instead" },
        { "--json", OPTION_FLAG, &request.json, NULL, "as JSON" },
        { "--html", OPTION_TEXT, &request.html, "FILE", "a page with plots as well" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble bench MODEL [options]",
        .about = "Measures tokens per second on random tokens: prefill until the first token of the answer, decode "
                 "summed\n"
                 "over the batch. What is in the cache before is read untimed. Rounds go through all combinations; "
                 "the\n"
                 "median counts, beside the share of what this machine's memory or arithmetic would allow.",
        .example = "nibble bench model.gguf -d 0,4096 --batch 1,8 --kv-cache-dtype bfloat16,nvfp4 --html bench.html",
        .options = options,
        .required = { "MODEL" },
        .positional_max = 1,
    };
    int count;
    int status = ranks_begin(&request.cache.joined);
    if (status < 0)
        status = options_parse(&line, argc, argv, &count);
    if (status < 0)
        status = ranks_settle(request.cache.joined, request.cache.ranks, request.json);
    if (status < 0)
        status = run(argv[0], &request);
    nibble_ranks_close(request.cache.joined);
    struct strbuf *lists[] = { &request.prompt, &request.new,     &request.depth,
                               &request.batch,  &request.threads, &request.cache.skip_layers };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        strbuf_free(lists[i]);
    return status;
}
