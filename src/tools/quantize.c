// SPDX-License-Identifier: Apache-2.0
// tools/quantize.c: a checkpoint written anew with smaller weights, and a report of what that lost.
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "tools/calibration.h"
#include "cli/cli.h"
#include "tools/folder.h"
#include "tools/kv_scales.h"
#include "cli/options.h"

enum { WORST_SHOWN = 5, KEPT_SHOWN = 5 };

static const char *const weight_words[] = { "nvfp4", "mxfp4", "fp8", "int8", "bf16", NULL };
static const char *const layout_words[] = { "compressed-tensors", "modelopt", NULL };

enum rounding { ROUNDING_COMPENSATED, ROUNDING_NEAREST };
static const char *const rounding_words[] = { "compensated", "nearest", NULL };

struct request {
    const char *model, *out, *kv_text, *calibration;
    int weights, layout, rounding; // -1: not given
    long long threads;
    size_t shard_bytes;
    struct option_texts exclude;
    bool json;
};

static enum nibble_layout layout_of(const struct request *request)
{
    return request->layout < 0 ? NIBBLE_LAYOUT_COMPRESSED_TENSORS : (enum nibble_layout)request->layout;
}

static const char *layout_word(const struct request *request) // NULL: plain weights have none
{
    return request->weights == NIBBLE_WEIGHTS_BF16 ? NULL : layout_words[layout_of(request)];
}

struct layer {
    char *name;
    int64_t rows, cols;
    const char *format, *kept; // heap where they are not NULL
    bool compensated;
    double error;
};

struct report {
    struct layer *layers;
    size_t count, capacity;
    double seconds;
    size_t bytes;
    int files;
    struct nibble_error why_nearest; // where that was not asked for; "" otherwise
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
    struct report *report = context;
    if (report->count == report->capacity) {
        report->capacity = report->capacity ? report->capacity * 2 : 256;
        report->layers = memory_grow(report->layers, report->capacity, sizeof *report->layers);
    }
    report->layers[report->count++] = (struct layer){ .name = memory_text(tensor->name),
                                                      .rows = tensor->rows,
                                                      .cols = tensor->cols,
                                                      .format = memory_text(tensor->format),
                                                      .kept = tensor->kept ? memory_text(tensor->kept) : NULL,
                                                      .compensated = tensor->compensated,
                                                      .error = tensor->error };
}

static void report_free(struct report *report)
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
    const struct layer *x = a, *y = b;
    if (x->error != y->error)
        return x->error > y->error ? -1 : 1;
    return strcmp(x->name, y->name); // qsort itself keeps equal ones in order only while it gets memory
}

struct summary {
    size_t encoded, compensated, kept;
    double error; // the mean
};

static struct summary summarise(const struct report *report)
{
    struct summary sum = { 0 };
    for (size_t i = 0; i < report->count; i++) {
        sum.kept += report->layers[i].kept != NULL;
        sum.compensated += report->layers[i].compensated;
        sum.error += report->layers[i].error;
    }
    sum.encoded = report->count - sum.kept;
    sum.error /= sum.encoded ? (double)sum.encoded : 1;
    return sum;
}

static void print_json(const struct request *request, const struct report *report, struct strbuf *out)
{
    struct summary sum = summarise(report);
    json_t *layers = json_array();
    for (size_t i = 0; i < report->count; i++) {
        const struct layer *layer = &report->layers[i];
        json_array_append_new(
            layers,
            json_pack("{s:s, s:I, s:I, s:s, s:s?, s:b, s:f}", "name", layer->name, "rows", (json_int_t)layer->rows,
                      "cols", (json_int_t)layer->cols, "format", layer->format, "kept", layer->kept, "compensated",
                      layer->compensated, "error", layer->error));
    }
    json_t *root = json_pack(
        "{s:s, s:s, s:s?, s:I, s:i, s:f, s:I, s:s?, s:f, s:o}", "out", request->out, "weights",
        weight_words[request->weights], "layout", layout_word(request), "bytes", (json_int_t)report->bytes, "files",
        report->files, "seconds", report->seconds, "compensated", (json_int_t)sum.compensated, "why_nearest",
        report->why_nearest.text[0] ? report->why_nearest.text : NULL, "mean_error", sum.error, "tensors", layers);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    strbuf_add_format(out, "%s\n", text);
    free(text);
    json_decref(root);
}

static void print_rounding(const struct report *report, const struct summary *sum, struct strbuf *out)
{
    if (report->why_nearest.text[0])
        strbuf_add_format(out, "every weight rounded to the nearest, because the model cannot be run over a text: %s\n",
                          report->why_nearest.text);
    else if (sum->compensated)
        strbuf_add_format(out, "%s%zu of them so rounded that weights make up for each other's errors\n",
                          sum->compensated < sum->encoded ? "only " : "", sum->compensated);
}

static void print_text(const struct request *request, struct report *report, struct strbuf *out)
{
    struct summary sum = summarise(report);
    const char *layout = layout_word(request);
    strbuf_add_format(out, "%s: %.1f MB in %d files after %.1f s\n", request->out, (double)report->bytes * 1e-6,
                      report->files, report->seconds);
    strbuf_add_format(out, "%zu linear layers in %s", sum.encoded, weight_words[request->weights]);
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

// The text to run the model over. Where it cannot be run here, that is an error only if somebody insists.
static bool read_text(const struct nibble_checkpoint *checkpoint, const struct request *request, int32_t **ids,
                      size_t *count, struct report *report, struct nibble_error *error)
{
    const struct nibble_options options = { .device = "cpu", .kv_cache_dtype = "float32", .max_num_seqs = 1 };
    if (request->rounding == ROUNDING_NEAREST || request->weights == NIBBLE_WEIGHTS_BF16)
        return true;
    struct nibble_plan *plan = nibble_plan_make(checkpoint, &options, error);
    bool runs = plan && nibble_plan_accepted(plan);
    nibble_plan_close(plan);
    ptrdiff_t found = runs ? calibration_ids(checkpoint, request->calibration, ids, error) : -1;
    bool insisted = request->rounding == ROUNDING_COMPENSATED || request->calibration;
    if (found > 0)
        *count = (size_t)found;
    else if (!insisted)
        report->why_nearest = *error;
    return found > 0 || !insisted;
}

static bool write_folder(const struct nibble_checkpoint *checkpoint, const struct request *request, const char *folder,
                         struct report *report, struct nibble_error *error)
{
    struct cli_progress progress = { .label = "quantizing", .shown = -1 };
    struct kv_scales scales = { 0 };
    struct cli_progress measuring = { .label = "measuring", .shown = -1 };
    int32_t *ids = NULL;
    size_t id_count = 0;
    bool ok = read_text(checkpoint, request, &ids, &id_count, report, error);
    ok = ok
        && (!request->kv_text
            || kv_scales_measure(&scales, checkpoint, request->kv_text, (int)request->threads, show_progress,
                                 &measuring, error));
    struct nibble_quantize_options options = { .weights = (enum nibble_weights)request->weights,
                                               .layout = layout_of(request),
                                               .exclude = request->exclude.items,
                                               .exclude_count = (size_t)request->exclude.count,
                                               .k_scales = scales.k,
                                               .v_scales = scales.v,
                                               .shard_bytes = request->shard_bytes,
                                               .threads = (int)request->threads,
                                               .progress = show_progress,
                                               .progress_context = &progress,
                                               .tensor = add_layer,
                                               .tensor_context = report,
                                               .ids = ids,
                                               .id_count = id_count };
    ok = ok && nibble_text_save(checkpoint, folder, error) && nibble_quantize(checkpoint, folder, &options, error)
        && nibble_checkpoint_check(checkpoint, error);
    cli_progress_show(&progress, 1);
    kv_scales_free(&scales);
    free(ids);
    return ok;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool quantize(const struct request *request, struct report *report, struct nibble_error *error)
{
    struct folder folder;
    double start = now();
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(request->model, NIBBLE_NEED_ALL, error);
    bool ok = checkpoint && folder_begin(&folder, request->out, error);
    if (ok) {
        ok = write_folder(checkpoint, request, folder.partial.path, report, error);
        if (ok)
            ok = folder_commit(&folder, error);
        else
            folder_give_up(&folder);
    }
    nibble_checkpoint_close(checkpoint);
    report->seconds = now() - start;
    return ok && folder_measure(request->out, &report->bytes, &report->files, error);
}

static bool check(const struct request *request, struct nibble_error *error)
{
    *error = (struct nibble_error){ .usage = true };
    if (request->weights < 0)
        snprintf(error->text, sizeof error->text, "quantize needs a format: --weights nvfp4, mxfp4, fp8, int8 or bf16");
    else if (request->weights == NIBBLE_WEIGHTS_BF16 && (request->layout >= 0 || request->kv_text))
        snprintf(error->text, sizeof error->text, "a checkpoint with bf16 weights declares nothing; leave %s out",
                 request->kv_text ? "--kv-scales" : "--layout");
    else if (request->weights == NIBBLE_WEIGHTS_BF16 && (request->rounding >= 0 || request->calibration))
        snprintf(error->text, sizeof error->text, "bf16 weights are rounded to the nearest; leave %s out",
                 request->calibration ? "--calibration" : "--rounding");
    else if (request->rounding == ROUNDING_NEAREST && request->calibration)
        snprintf(error->text, sizeof error->text, "--rounding nearest needs no text; leave --calibration out");
    else
        return true;
    return false;
}

static int run(const struct request *request)
{
    struct report report = { 0 };
    struct nibble_error error;
    const struct sigaction action = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int status;
    if (check(request, &error) && quantize(request, &report, &error)) {
        struct strbuf out = { 0 };
        if (request->json)
            print_json(request, &report, &out);
        else
            print_text(request, &report, &out);
        status = cli_output(out.data, out.len);
        strbuf_free(&out);
    } else {
        status = cli_fail(&error, request->json);
    }
    report_free(&report);
    return status;
}

int command_quantize(int argc, char **argv)
{
    struct request request = { .weights = -1, .layout = -1, .rounding = -1 };
    const struct option_row options[] = {
        { "--weights", OPTION_WORD, &request.weights, "FORMAT", "nvfp4, mxfp4, fp8, int8 or bf16",
          .words = weight_words },
        { "--layout", OPTION_WORD, &request.layout, "L", "compressed-tensors (the default) or modelopt (nvfp4, fp8)",
          .words = layout_words },
        { "--exclude", OPTION_TEXTS, &request.exclude, "PATTERN ...",
          "modules to leave as they are: a path or part of one, with * or as re:REGEX" },
        { "--rounding", OPTION_WORD, &request.rounding, "R",
          "compensated (the default): weights make up for each other's errors; or nearest", .words = rounding_words },
        { "--calibration", OPTION_TEXT, &request.calibration, "FILE",
          "the text they learn that on, with the model run on the CPU (a built-in one)" },
        { "--kv-scales", OPTION_TEXT, &request.kv_text, "FILE", "a text to measure scales for an fp8 cache with" },
        { "--shard-size", OPTION_SIZE, &request.shard_bytes, "BYTES", "of a file of weights (5 GB)" },
        { "--threads", OPTION_INT, &request.threads, "N", "threads (all cores)", 1, 256 },
        { "--json", OPTION_FLAG, &request.json, NULL, "the report as JSON" },
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
    request.model = argv[0];
    request.out = argv[1];
    return run(&request);
}
