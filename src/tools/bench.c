// SPDX-License-Identifier: Apache-2.0
// tools/bench.c: `nibble bench`: throughput of prefill and decode over a grid of lengths, batches, formats and threads.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tools/bench.h"
#include "tools/cache_formats.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/ranks.h"
#include "tools/output.h"

enum { LIST_MAX = 64, SUBJECTS_MAX = 64, CASES_MAX = 4096, TOKENS_MAX = 1 << 24, THREADS_MAX = 256, REPEATS = 5 };

struct numbers {
    int items[LIST_MAX];
    int count;
};

struct bench_command {
    const char *prompt, *new, *depth, *batch, *threads; // as they were typed
    struct option_texts dtypes;
    struct nibble_options engine;
    int repeats;
    const char *html;
    bool json, ops;
};

// The values that are combined with each other.
struct bench_grid {
    struct numbers prompt, new, depth, batch, threads;
    struct cache_formats formats;
};

// ---- lists --------------------------------------------------------------------------------------------------------

// Reads lists such as "0,4096 8192". An option that is not given has the one number `otherwise`.
static bool read_numbers(const char *flag, const char *typed, int low, int high, int otherwise, struct numbers *out,
                         struct error *err)
{
    static const char between[] = ", ";
    const char *at = typed ? typed : "";
    *out = (struct numbers){ .items = { otherwise }, .count = !*at };
    for (at += strspn(at, between); *at; at += strspn(at, between)) {
        char *end;
        errno = 0;
        long number = strtol(at, &end, 10);
        if (end == at || errno || number < low || number > high || (*end && !strchr(between, *end)))
            return fail_usage(err, "%s takes whole numbers from %d to %d, such as 1,8, not \"%.*s\"", flag, low, high,
                              (int)strcspn(at, between), at);
        if (out->count == LIST_MAX)
            return fail_usage(err, "%s takes up to %d numbers", flag, LIST_MAX);
        out->items[out->count++] = (int)number;
        at = end;
    }
    return out->count || fail_usage(err, "%s takes whole numbers, such as 1,8, and got none", flag);
}

static bool read_grid(const struct bench_command *command, struct bench_grid *out, struct error *err)
{
    if (command->ops && (command->json || command->html))
        return fail_usage(err, "--ops prints a table of its own and cannot be combined with %s",
                          command->json ? "--json" : "--html");
    return read_numbers("-p", command->prompt, 0, TOKENS_MAX, 512, &out->prompt, err)
        && read_numbers("-n", command->new, 0, TOKENS_MAX, 128, &out->new, err)
        && read_numbers("-d", command->depth, 0, TOKENS_MAX, 0, &out->depth, err)
        && read_numbers("--batch", command->batch, 1, BENCH_BATCH_MAX, 1, &out->batch, err)
        && read_numbers("--threads", command->threads, 0, THREADS_MAX, 0, &out->threads, err)
        && cache_formats_read(&command->dtypes, &out->formats, err);
}

// ---- cases ---------------------------------------------------------------------------------------------

// Adds a case for every engine, next to each other, as they are compared with each other.
static void add_case(struct bench_run *bench, struct bench_case wanted)
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

static void add_cases_at(struct bench_run *bench, const struct bench_grid *grid, int depth)
{
    struct bench_case prefill = { .kind = BENCH_PREFILL, .depth = depth, .batch = 1 };
    struct bench_case decode = { .kind = BENCH_DECODE, .depth = depth };
    for (int i = 0; i < grid->prompt.count; i++)
        if ((prefill.prompt = grid->prompt.items[i]))
            add_case(bench, prefill);
    for (int i = 0; i < grid->new.count; i++)
        for (int j = 0; j < grid->batch.count; j++) {
            decode.batch = grid->batch.items[j];
            if ((decode.new = grid->new.items[i]))
                add_case(bench, decode);
        }
}

static bool choose_cases(struct bench_run *bench, const struct bench_grid *grid, struct error *err)
{
    int subjects = grid->formats.count * grid->threads.count;
    int kinds = grid->prompt.count + grid->new.count * grid->batch.count;
    if (subjects > SUBJECTS_MAX || grid->depth.count * kinds > CASES_MAX / subjects)
        return fail_usage(err,
                          "%d combinations of format and threads, times %d of the rest, are too many: up to %d, and "
                          "%d in all, are possible",
                          subjects, grid->depth.count * kinds, SUBJECTS_MAX, CASES_MAX);
    bench->subject_count = subjects;
    bench->subjects = memory_new((size_t)subjects, sizeof *bench->subjects);
    for (int i = 0; i < subjects; i++)
        bench->subjects[i] = (struct bench_subject){ .format = grid->formats.items[i % grid->formats.count],
                                                     .threads = grid->threads.items[i / grid->formats.count] };
    for (int i = 0; i < grid->depth.count; i++)
        add_cases_at(bench, grid, grid->depth.items[i]);
    return bench->case_count || fail_usage(err, "-p 0 and -n 0 leave nothing to measure");
}

// ---- engines ------------------------------------------------------------------------------------------------------

// The longest sequence and the largest batch of all cases.
static void find_needs(const struct bench_run *bench, int *length, int *sequences)
{
    *length = *sequences = 1;
    for (int i = 0; i < bench->case_count; i++) {
        int wanted = bench_case_length(&bench->cases[i]);
        *length = wanted > *length ? wanted : *length;
        *sequences = bench->cases[i].batch > *sequences ? bench->cases[i].batch : *sequences;
    }
}

// Refuses a cache that is too small: sequences would wait for each other.
static bool check_room(const struct bench_subject *subject, int length, int sequences, struct error *err)
{
    struct nibble_scheduler_stats stats;
    nibble_scheduler_stats(subject->scheduler, &stats);
    size_t wanted = (size_t)length * (size_t)sequences;
    return stats.cache_tokens >= wanted
        || fail(err,
                "%d sequences of %d tokens do not fit: the cache (%s) has a capacity of %zu tokens, and %zu "
                "are needed; raise --kv-cache-memory-bytes, or lower --batch, -d, -p or -n",
                sequences, length, subject->format, stats.cache_tokens, wanted);
}

// Limits that are not given (0) are chosen to fit.
static bool check_limits(const struct nibble_options *options, int length, int sequences, struct error *err)
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
            return fail(err, "%s %d is too low: %d sequences of %d tokens are to be measured, which takes %d",
                        limits[i].flag, limits[i].value, sequences, length, limits[i].needed);
    return true;
}

static bool measure_ceiling(struct bench_run *bench, struct bench_subject *subject, struct error *err)
{
    for (const struct bench_subject *other = bench->subjects; other < subject; other++)
        if (other->threads == subject->threads) {
            subject->ceiling = other->ceiling;
            return true;
        }
    return nibble_engine_ceiling(subject->engine, &subject->ceiling, err);
}

static struct nibble_options options_of(const struct bench_run *bench, const struct bench_subject *subject,
                                        const struct bench_command *command)
{
    int length, sequences;
    find_needs(bench, &length, &sequences);
    struct nibble_options options = command->engine;
    options.threads = subject->threads;
    options.kv_cache_dtype = subject->format;
    options.max_model_len = options.max_model_len ? options.max_model_len : length;
    // One sequence more than run at once, so that new prompts of each round do not evict the depths from the cache.
    options.max_num_seqs = options.max_num_seqs ? options.max_num_seqs : sequences + 1;
    return options;
}

// Checks all subjects before the first is loaded.
static bool check_subjects(const struct bench_run *bench, const struct nibble_checkpoint *checkpoint,
                           const struct bench_command *command, struct error *err)
{
    int length, sequences;
    find_needs(bench, &length, &sequences);
    for (int i = 0; i < bench->subject_count; i++) {
        struct nibble_options options = options_of(bench, &bench->subjects[i], command);
        if (!check_limits(&options, length, sequences, err) || !nibble_engine_check(checkpoint, &options, err))
            return false;
    }
    return true;
}

static bool open_subject(struct bench_run *bench, struct bench_subject *subject,
                         const struct nibble_checkpoint *checkpoint, const struct bench_command *command,
                         struct error *err)
{
    int length, sequences;
    find_needs(bench, &length, &sequences);
    struct nibble_options options = options_of(bench, subject, command);
    subject->trace = (struct nibble_trace){ .op = bench_record_op, .context = subject };
    options.trace = bench->ops ? &subject->trace : NULL;
    subject->engine = cli_engine_open(checkpoint, &options, err);
    if (!subject->engine)
        return false;
    subject->threads = nibble_engine_threads(subject->engine);
    subject->scheduler = nibble_scheduler_open(subject->engine, &(struct nibble_scheduler_options){ 0 });
    cli_print_plan(subject->engine);
    return check_room(subject, length, sequences, err) && measure_ceiling(bench, subject, err);
}

static bool open_subjects(struct bench_run *bench, const struct nibble_checkpoint *checkpoint,
                          const struct bench_command *command, struct error *err)
{
    for (int i = 0; i < bench->subject_count; i++)
        if (!open_subject(bench, &bench->subjects[i], checkpoint, command, err))
            return false;
    return true;
}

static void bench_close(struct bench_run *bench)
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

static bool has_samples(const struct bench_run *bench)
{
    for (int i = 0; i < bench->case_count; i++)
        if (bench->cases[i].sample_count)
            return true;
    return false;
}

static bool report(const struct bench_run *bench, const struct bench_command *command, struct output_file *page,
                   struct error *err)
{
    if (!has_samples(bench))
        return fail(err, "stopped before anything was measured");
    if (bench->stopped)
        cli_print("stopped: some figures come from fewer repeats, or are missing\n");
    struct strbuf table = { 0 }, json = { 0 };
    (bench->ops ? bench_ops_print : bench_print_table)(bench, &table);
    bench_print_json(bench, &json);
    const struct strbuf *text = command->json ? &json : &table;
    bool ok = output_file_finish_page(page, json.data, err) && cli_write(text->data, text->len, err);
    strbuf_free(&table);
    strbuf_free(&json);
    return ok;
}

static int run(const char *model, const struct bench_command *command)
{
    struct bench_run bench = { .repeats = command->repeats, .ops = command->ops };
    struct strbuf name = { 0 }; // whatever bytes a path has, the report is text
    strbuf_add_clean(&name, bytes_of(model));
    bench.model = strbuf_text(&name);
    struct bench_grid grid = { 0 };
    struct output_file page = { 0 };
    struct error err = { 0 };
    struct nibble_checkpoint *checkpoint = NULL;
    bool ok = read_grid(command, &grid, &err) && choose_cases(&bench, &grid, &err)
        && output_file_open(&page, command->html, "--html", &err)
        && (checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, &err))
        && check_subjects(&bench, checkpoint, command, &err) && open_subjects(&bench, checkpoint, command, &err)
        && bench_measure(&bench, &err) && report(&bench, command, &page, &err);
    int status = ok ? EXIT_DONE : cli_fail(&err, command->json);
    output_file_close(&page);
    bench_close(&bench);
    nibble_checkpoint_close(checkpoint);
    cache_formats_free(&grid.formats);
    strbuf_free(&name);
    return status;
}

int command_bench(int argc, char **argv)
{
    struct bench_command command = { .repeats = REPEATS };
    const struct option_row options[] = {
        { "-p", OPTION_LIST, &command.prompt, "N,...", "prefill: tokens of one prompt; 0: none (512)" },
        { "-n", OPTION_LIST, &command.new, "N,...", "decode: tokens drawn in each sequence; 0: none (128)" },
        { "-d", OPTION_LIST, &command.depth, "N,...", "tokens that are in the cache before (0)" },
        { "--batch", OPTION_LIST, &command.batch, "N,...", "sequences that decode at once (1)" },
        { "-r", OPTION_INT, &command.repeats, "N", "timed rounds, after one that is not (5)", 1, BENCH_REPEATS_MAX },
        { "--kv-cache-dtype", OPTION_TEXTS, &command.dtypes, "F,...",
          "cache formats; one with ranges apart: nvfp4 0-3:fp8,4-:nvfp4" },
        ENGINE_FURTHER_ROWS(command.engine),
        SERVING_OPTION_ROWS(command.engine),
        RANKS_OPTION_ROW(command.engine),
        { "--threads", OPTION_LIST, &command.threads, "N,...", "threads; 0: all cores (0)" },
        { "--no-self-test", OPTION_FLAG, &command.engine.no_self_test, NULL, "do not check the kernels first" },
        { "--ops", OPTION_FLAG, &command.ops, NULL, "a roofline table of each case's ops instead" },
        { "--json", OPTION_FLAG, &command.json, NULL, "as JSON" },
        { "--html", OPTION_TEXT, &command.html, "FILE", "a page with plots as well" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble bench MODEL [options]",
        .about = "Measures tokens per second on random tokens: prefill until the first token of the answer, decode "
                 "summed\n"
                 "over the batch. Tokens in the cache before are read untimed. Rounds go through all combinations; "
                 "the\n"
                 "median counts, beside the share of what this machine's memory or arithmetic would allow.",
        .example = "nibble bench model.gguf -d 0,4096 --batch 1,8 --kv-cache-dtype bfloat16,nvfp4 --html bench.html",
        .options = options,
        .required = { "MODEL" },
        .positional_max = 1,
    };
    int count;
    int status = ranks_begin(&command.engine.ranks);
    if (status < 0)
        status = options_parse(&line, argc, argv, &count);
    if (status < 0)
        status = ranks_settle(&command.engine, command.json);
    if (status < 0)
        status = run(argv[0], &command);
    nibble_ranks_close(command.engine.ranks);
    return status;
}
