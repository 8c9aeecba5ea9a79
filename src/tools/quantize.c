// SPDX-License-Identifier: Apache-2.0
// tools/quantize.c: `nibble quantize`: a checkpoint written anew with smaller weights, and a report of what that lost.
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "tools/calibration.h"
#include "cli/cli.h"
#include "tools/output.h"
#include "cli/options.h"

enum { WORST_SHOWN = 5, KEPT_SHOWN = 5 };

static const char *const weight_words[] = { "nvfp4", "mxfp4", "fp8", "int8", "bf16", NULL };
static const char *const layout_words[] = { "compressed-tensors", "modelopt", NULL };

enum rounding { ROUNDING_COMPENSATED, ROUNDING_NEAREST };
static const char *const rounding_words[] = { "gptq", "nearest", NULL };

struct quantize_command {
    const char *model, *out, *kv_text, *calibration;
    int weights, layout, rounding; // -1: not given
    int threads;
    size_t shard_bytes;
    struct option_texts exclude;
    bool json;
};

static enum nibble_layout layout_of(const struct quantize_command *command)
{
    return command->layout < 0 ? NIBBLE_LAYOUT_COMPRESSED_TENSORS : (enum nibble_layout)command->layout;
}

static const char *layout_word(const struct quantize_command *command) // NULL: plain weights have none
{
    return command->weights == NIBBLE_WEIGHTS_BF16 ? NULL : layout_words[layout_of(command)];
}

struct quantized_layer {
    char *name;
    int64_t rows, cols;
    const char *format, *kept; // heap where they are not NULL
    bool gptq;
    double error;
};

struct quantize_report {
    struct quantized_layer *layers;
    size_t count, capacity;
    double seconds;
    size_t bytes;
    int files;
    struct error why_nearest; // where that was not asked for; "" otherwise
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool show_progress(void *context, double done)
{
    cli_progress_show(context, done < 1 ? done : 0.999);
    return !interrupted;
}

// ---- the report ----

static void add_layer(void *context, const struct nibble_quantized *tensor)
{
    struct quantize_report *report = context;
    if (report->count == report->capacity) {
        report->capacity = report->capacity ? report->capacity * 2 : 256;
        report->layers = memory_grow(report->layers, report->capacity, sizeof *report->layers);
    }
    report->layers[report->count++] = (struct quantized_layer){ .name = memory_text(tensor->name),
                                                                .rows = tensor->rows,
                                                                .cols = tensor->cols,
                                                                .format = memory_text(tensor->format),
                                                                .kept = tensor->kept ? memory_text(tensor->kept) : NULL,
                                                                .gptq = tensor->gptq,
                                                                .error = tensor->error };
}

static void report_free(struct quantize_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        free(report->layers[i].name);
        free((char *)report->layers[i].format);
        free((char *)report->layers[i].kept);
    }
    free(report->layers);
}

static int compare_errors(const void *a, const void *b)
{
    const struct quantized_layer *x = a, *y = b;
    if (x->error != y->error)
        return x->error > y->error ? -1 : 1;
    return strcmp(x->name, y->name); // qsort itself keeps equal ones in order only while it gets memory
}

struct quantize_summary {
    size_t encoded, gptq, kept;
    double error; // the mean
};

static struct quantize_summary summarise(const struct quantize_report *report)
{
    struct quantize_summary sum = { 0 };
    for (size_t i = 0; i < report->count; i++) {
        sum.kept += report->layers[i].kept != NULL;
        sum.gptq += report->layers[i].gptq;
        sum.error += report->layers[i].error;
    }
    sum.encoded = report->count - sum.kept;
    sum.error /= sum.encoded ? (double)sum.encoded : 1;
    return sum;
}

static void print_json(const struct quantize_command *command, const struct quantize_report *report, struct strbuf *out)
{
    struct quantize_summary sum = summarise(report);
    json_t *layers = json_array();
    for (size_t i = 0; i < report->count; i++) {
        const struct quantized_layer *layer = &report->layers[i];
        json_array_append_new(
            layers,
            json_pack("{s:s, s:I, s:I, s:s, s:s?, s:b, s:f}", "name", layer->name, "rows", (json_int_t)layer->rows,
                      "cols", (json_int_t)layer->cols, "format", layer->format, "kept", layer->kept, "gptq",
                      layer->gptq, "error", layer->error));
    }
    json_t *root = json_pack(
        "{s:s, s:s, s:s?, s:I, s:i, s:f, s:I, s:s?, s:f, s:o}", "out", command->out, "weights",
        weight_words[command->weights], "layout", layout_word(command), "bytes", (json_int_t)report->bytes, "files",
        report->files, "seconds", report->seconds, "gptq", (json_int_t)sum.gptq, "why_nearest",
        report->why_nearest.text[0] ? report->why_nearest.text : NULL, "mean_error", sum.error, "tensors", layers);
    cli_add_json(out, root, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
}

static void print_rounding(const struct quantize_report *report, const struct quantize_summary *sum, struct strbuf *out)
{
    if (report->why_nearest.text[0])
        strbuf_add_format(out, "every weight rounded to the nearest, because the model cannot be run over a text: %s\n",
                          report->why_nearest.text);
    else if (sum->gptq)
        strbuf_add_format(out, "%s%zu of them so rounded that weights make up for each other's errors\n",
                          sum->gptq < sum->encoded ? "only " : "", sum->gptq);
}

static void print_text(const struct quantize_command *command, struct quantize_report *report, struct strbuf *out)
{
    struct quantize_summary sum = summarise(report);
    const char *layout = layout_word(command);
    strbuf_add_format(out, "%s: %.1f MB in %d files after %.1f s\n", command->out, (double)report->bytes * 1e-6,
                      report->files, report->seconds);
    strbuf_add_format(out, "%zu linear layers in %s", sum.encoded, weight_words[command->weights]);
    if (layout)
        strbuf_add_format(out, " (%s)", layout);
    strbuf_add_format(out, ", %zu left as they were\n", sum.kept);
    size_t shown = 0;
    for (size_t i = 0; i < report->count && shown < KEPT_SHOWN; i++)
        if (report->layers[i].kept && ++shown)
            strbuf_add_format(out, "  %s: %s, %s\n", report->layers[i].name, report->layers[i].format,
                              report->layers[i].kept);
    if (sum.kept > shown)
        strbuf_add_format(out, "  and %zu more\n", sum.kept - shown);
    print_rounding(report, &sum, out);
    strbuf_add_format(out, "relative error of weights %.3f %% in the mean; the largest:\n", 100 * sum.error);
    if (report->count)
        qsort(report->layers, report->count, sizeof *report->layers, compare_errors);
    for (size_t i = 0; i < report->count && i < WORST_SHOWN; i++)
        strbuf_add_format(out, "  %7.3f %%  %s (%lld x %lld)\n", 100 * report->layers[i].error, report->layers[i].name,
                          (long long)report->layers[i].rows, (long long)report->layers[i].cols);
}

// ---- the work ----

// The text to run the model over. Where it cannot be run here, that is an error only if compensation was requested.
static bool read_text(const struct nibble_checkpoint *checkpoint, const struct quantize_command *command, int32_t **ids,
                      size_t *count, struct quantize_report *report, struct error *err)
{
    const struct nibble_options options = { .device = "cpu", .kv_cache_dtype = "float32", .max_num_seqs = 1 };
    if (command->rounding == ROUNDING_NEAREST || command->weights == NIBBLE_WEIGHTS_BF16)
        return true;
    struct nibble_plan *plan = nibble_plan_make(checkpoint, &options, err);
    bool runs = plan && nibble_plan_accepted(plan);
    nibble_plan_close(plan);
    ptrdiff_t found = runs ? calibration_ids(checkpoint, command->calibration, ids, err) : -1;
    bool required = command->rounding == ROUNDING_COMPENSATED || command->calibration;
    if (found > 0)
        *count = (size_t)found;
    else if (!required)
        report->why_nearest = *err;
    return found > 0 || !required;
}

static bool write_folder(const struct nibble_checkpoint *checkpoint, const struct quantize_command *command,
                         const char *folder, struct quantize_report *report, struct error *err)
{
    struct cli_progress progress = { .label = "quantizing", .shown = -1 };
    struct kv_scales scales = { 0 };
    struct cli_progress measuring = { .label = "measuring", .shown = -1 };
    int32_t *ids = NULL;
    size_t id_count = 0;
    bool ok = read_text(checkpoint, command, &ids, &id_count, report, err);
    ok = ok
        && (!command->kv_text
            || kv_scales_measure(&scales, checkpoint, command->kv_text, command->threads, show_progress, &measuring,
                                 err));
    struct nibble_quantize_options options = { .weights = (enum nibble_weights)command->weights,
                                               .layout = layout_of(command),
                                               .exclude = command->exclude.items,
                                               .exclude_count = (size_t)command->exclude.count,
                                               .k_scales = scales.k,
                                               .v_scales = scales.v,
                                               .shard_bytes = command->shard_bytes,
                                               .threads = command->threads,
                                               .progress = show_progress,
                                               .progress_context = &progress,
                                               .tensor = add_layer,
                                               .tensor_context = report,
                                               .ids = ids,
                                               .id_count = id_count };
    ok = ok && nibble_text_save(checkpoint, folder, err) && nibble_quantize(checkpoint, folder, &options, err)
        && nibble_checkpoint_check(checkpoint, err);
    cli_progress_show(&progress, 1);
    kv_scales_free(&scales);
    free(ids);
    return ok;
}

static bool quantize(const struct quantize_command *command, struct quantize_report *report, struct error *err)
{
    struct output_folder folder;
    double start = clock_now();
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(command->model, NIBBLE_NEED_ALL, err);
    bool ok = checkpoint && output_folder_begin(&folder, command->out, err);
    if (ok) {
        ok = write_folder(checkpoint, command, folder.partial.path, report, err);
        if (ok)
            ok = output_folder_commit(&folder, err);
        else
            output_folder_give_up(&folder);
    }
    nibble_checkpoint_close(checkpoint);
    report->seconds = clock_now() - start;
    return ok && output_folder_measure(command->out, &report->bytes, &report->files, err);
}

static bool check(const struct quantize_command *command, struct error *err)
{
    bool plain = command->weights == NIBBLE_WEIGHTS_BF16;
    if (command->weights < 0)
        return fail_usage(err, "quantize needs a format: --weights nvfp4, mxfp4, fp8, int8 or bf16");
    if (plain && (command->layout >= 0 || command->kv_text))
        return fail_usage(err, "a checkpoint with bf16 weights declares nothing; leave %s out",
                          command->kv_text ? "--kv-scales" : "--layout");
    if (plain && (command->rounding >= 0 || command->calibration))
        return fail_usage(err, "bf16 weights are rounded to the nearest; leave %s out",
                          command->calibration ? "--calibration" : "--rounding");
    if (command->rounding == ROUNDING_NEAREST && command->calibration)
        return fail_usage(err, "--rounding nearest needs no text; leave --calibration out");
    return true;
}

static int run(const struct quantize_command *command)
{
    struct quantize_report report = { 0 };
    struct error err;
    const struct sigaction action = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int status;
    if (check(command, &err) && quantize(command, &report, &err)) {
        struct strbuf out = { 0 };
        if (command->json)
            print_json(command, &report, &out);
        else
            print_text(command, &report, &out);
        status = cli_output(out.data, out.len);
        strbuf_free(&out);
    } else {
        status = cli_fail(&err, command->json);
    }
    report_free(&report);
    return status;
}

int command_quantize(int argc, char **argv)
{
    struct quantize_command command = { .weights = -1, .layout = -1, .rounding = -1 };
    const struct option_row options[] = {
        { "--weights", OPTION_WORD, &command.weights, "FORMAT", "nvfp4, mxfp4, fp8, int8 or bf16",
          .words = weight_words },
        { "--layout", OPTION_WORD, &command.layout, "L", "compressed-tensors (the default) or modelopt (nvfp4, fp8)",
          .words = layout_words },
        { "--exclude", OPTION_TEXTS, &command.exclude, "PATTERN ...",
          "modules to leave as they are: a path or part of one, with * or as re:REGEX" },
        { "--rounding", OPTION_WORD, &command.rounding, "R",
          "gptq (the default): weights make up for each other's errors; or nearest", .words = rounding_words },
        { "--calibration", OPTION_TEXT, &command.calibration, "FILE",
          "the text they learn that on, with the model run on the CPU (a built-in one)" },
        { "--kv-scales", OPTION_TEXT, &command.kv_text, "FILE", "a text to measure scales for an fp8 cache with" },
        { "--shard-size", OPTION_SIZE, &command.shard_bytes, "BYTES", "of a file of weights (5 GB)" },
        { "--threads", OPTION_INT, &command.threads, "N", "threads (all cores)", 1, 256 },
        { "--json", OPTION_FLAG, &command.json, NULL, "the report as JSON" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble quantize MODEL OUT --weights FORMAT [options]",
        .about = "Writes a checkpoint anew into the folder OUT, as published ones are laid out: linear layers in\n"
                 "FORMAT, with scales of least error; embeddings, norms, routers and the head as they are.",
        .example = "nibble quantize model.gguf model-nvfp4 --weights nvfp4",
        .options = options,
        .required = { "MODEL", "OUT" },
        .positional_max = 2,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    command.model = argv[0];
    command.out = argv[1];
    return run(&command);
}
