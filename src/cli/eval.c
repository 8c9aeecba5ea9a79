// SPDX-License-Identifier: Apache-2.0
// cli/eval.c: perplexity of a text, with --against how far one cache format strays from another, and with --sweep how
// far many do.
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "cli/cache_options.h"
#include "cli/cli.h"
#include "cli/eval.h"
#include "cli/output_file.h"
#include "cli/ranks.h"

struct request {
    const char *model, *text, *against, *html;
    struct option_texts dtypes;
    struct cache_options cache;
    long long context, chunks, threads;
    bool sweep, needle, layers, json;
};

// What a sweep measures when no format was named.
static const struct option_texts swept = { { "bfloat16", "fp8", "int8_per_token_head", "fp8/nvfp4", "nvfp4/fp8",
                                             "int4_per_token_head", "nvfp4_4over6", "nvfp4" }, 8 };

// ---- one cache ----------------------------------------------------------------------------------------------------

struct result {
    struct quality_score score;
    struct needle_score needle;
    struct nibble_layer_error *layers; // heap, or NULL
    int layer_count, chunks;
};

static const char *cache_name(const struct request *request)
{
    return request->cache.plan ? request->cache.plan : request->cache.dtype ? request->cache.dtype : "auto";
}

static json_t *json_of_layers(const struct result *result)
{
    json_t *layers = json_array();
    for (int i = 0; i < result->layer_count; i++)
        json_array_append_new(layers, json_pack("{s:f, s:f, s:f}", "k", result->layers[i].k, "v", result->layers[i].v,
                                                "attention", result->layers[i].out));
    return layers;
}

static void print_json(const struct request *request, const struct result *result, struct strbuf *out)
{
    const struct quality_score *score = &result->score;
    json_t *root = json_pack("{s:f, s:I, s:i, s:s}", "perplexity", score->perplexity, "tokens",
                             (json_int_t)score->counted, "chunks", result->chunks, "kv_cache_dtype",
                             cache_name(request));
    if (request->against) {
        json_object_set_new(root, "against", json_string(request->against));
        json_object_set_new(root, "kld",
                            json_pack("{s:f, s:f, s:f, s:f}", "mean", score->mean, "median", score->median, "p99",
                                      score->p99, "max", score->max));
        json_object_set_new(root, "top1", json_real(score->top1));
    }
    if (request->needle)
        json_object_set_new(root, "recall", needle_json(&result->needle));
    if (request->layers)
        json_object_set_new(root, "layers", json_of_layers(result));
    char *text = json_dumps(root, JSON_REAL_PRECISION(9));
    strbuf_add_format(out, "%s\n", text);
    free(text);
    json_decref(root);
}

static void print_text(const struct request *request, const struct result *result, struct strbuf *out)
{
    const struct quality_score *score = &result->score;
    strbuf_add_format(out, "perplexity %.4f over %zu tokens in %d chunks, cache %s\n", score->perplexity,
                      score->counted, result->chunks, cache_name(request));
    if (request->against)
        strbuf_add_format(
            out, "KL divergence from cache %s: mean %.6f, median %.6f, 99 %% %.6f, max %.6f\nsame top token: %.2f %%\n",
            request->against, score->mean, score->median, score->p99, score->max, 100 * score->top1);
    if (request->needle) {
        strbuf_add_format(out, "recall of a needle: %.4f; by depth", result->needle.mean);
        for (int i = 0; i < NEEDLE_DEPTHS; i++)
            strbuf_add_format(out, " %.4f", result->needle.likely[i]);
        strbuf_add_byte(out, '\n');
    }
    if (request->layers)
        strbuf_add_format(out, "%5s  %9s  %9s  %9s\n", "layer", "keys", "values", "attention");
    for (int i = 0; i < result->layer_count; i++)
        strbuf_add_format(out, "%5d  %7.2f %%  %7.2f %%  %7.2f %%\n", i, 100 * result->layers[i].k,
                          100 * result->layers[i].v, 100 * result->layers[i].out);
}

// After the engines are closed: it opens one of its own.
static bool measure_layers(const struct nibble_checkpoint *checkpoint, const struct quality_text *text,
                           const struct nibble_options *options, struct result *result, struct nibble_error *error)
{
    struct cli_progress progress = { .label = "measuring layers", .shown = -1 };
    struct nibble_options shown = *options;
    shown.calibrating = cli_progress_show;
    shown.progress_context = &progress;
    result->layers = memory_new((size_t)result->layer_count, sizeof *result->layers);
    return nibble_layer_errors(checkpoint, &shown, text->ids, (size_t)text->context, result->layers, error);
}

static bool evaluate_one(const struct nibble_checkpoint *checkpoint, const struct nibble_tokenizer *tokenizer,
                         const struct quality_text *text, const struct nibble_options *options,
                         const struct request *request, struct strbuf *out, struct nibble_error *error)
{
    struct nibble_options plain = quality_plain(options, request->against);
    struct cli_progress progress = { .label = "evaluating", .shown = -1 };
    struct quality_side side = { 0 };
    struct quality_reference reference = { 0 };
    struct result result = { .chunks = text->chunks };
    bool ok = quality_side_open(&side, checkpoint, options, error)
        && (!request->against || quality_reference_open(&reference, checkpoint, &plain, text, false, error))
        && quality_measure(&side, request->against ? &reference : NULL, text, cli_progress_show, &progress,
                           &result.score, error)
        && (!request->needle || needle_measure(&side, tokenizer, text, &result.needle, error));
    result.layer_count = ok && request->layers ? nibble_engine_layers(side.engine) : 0;
    quality_side_close(&side);
    quality_reference_close(&reference);
    ok = ok && (!request->layers || measure_layers(checkpoint, text, options, &result, error));
    if (ok)
        (request->json ? print_json : print_text)(request, &result, out);
    free(result.layers);
    return ok;
}

// ---- many ---------------------------------------------------------------------------------------------------------

static bool evaluate_many(const struct nibble_checkpoint *checkpoint, const struct nibble_tokenizer *tokenizer,
                          const struct quality_text *text, const struct nibble_options *options,
                          const struct request *request, struct strbuf *out, struct nibble_error *error)
{
    struct sweep sweep = { .against = request->against ? request->against : "float32",
                           .needle = request->needle,
                           .context = text->context,
                           .chunks = text->chunks };
    struct cache_formats formats = { 0 };
    struct output_file page = { 0 };
    struct strbuf name = { 0 }, html = { 0 }; // whatever bytes a path has, the report is text
    strbuf_add_clean(&name, bytes_of(request->model));
    sweep.model = strbuf_text(&name);
    bool ok = cache_formats_read(request->dtypes.count ? &request->dtypes : &swept, &formats, error)
        && output_file_open(&page, request->html, "--html", error)
        && sweep_measure(&sweep, checkpoint, tokenizer, text, &formats, options, error);
    if (ok) {
        (request->json ? sweep_print_json : sweep_print_table)(&sweep, out);
        sweep_print_html(&sweep, &html);
        ok = output_file_finish(&page, html.data, html.len, error);
    }
    output_file_close(&page);
    sweep_free(&sweep);
    cache_formats_free(&formats);
    strbuf_free(&name);
    strbuf_free(&html);
    return ok;
}

// ---- the command --------------------------------------------------------------------------------------------------

static bool evaluate_text(const struct nibble_checkpoint *checkpoint, const struct nibble_tokenizer *tokenizer,
                          const struct quality_text *text, const struct request *request, struct nibble_error *error)
{
    struct strbuf out = { 0 };
    struct nibble_options options = { .threads = (int)request->threads };
    cache_options_apply(&request->cache, &options);
    options.max_model_len = options.max_model_len ? options.max_model_len : text->context;
    bool ok = (request->sweep ? evaluate_many : evaluate_one)(checkpoint, tokenizer, text, &options, request, &out,
                                                              error)
        && nibble_checkpoint_check(checkpoint, error) && cli_write(out.data, out.len, error);
    strbuf_free(&out);
    return ok;
}

static bool evaluate(const struct request *request, struct nibble_error *error)
{
    struct nibble_text content = { 0 };
    struct quality_text text = { 0 };
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(request->model, NIBBLE_NEED_ALL, error);
    struct nibble_tokenizer *tokenizer = checkpoint ? nibble_tokenizer_open(checkpoint, error) : NULL;
    bool ok = tokenizer && cli_read(request->text, &content, error)
        && quality_text_cut(&text, tokenizer, request->text, content.data, content.len, (int)request->context,
                            (int)request->chunks, error)
        && evaluate_text(checkpoint, tokenizer, &text, request, error);
    free(content.data);
    free(text.ids);
    nibble_tokenizer_close(tokenizer);
    nibble_checkpoint_close(checkpoint);
    return ok;
}

// The format of a single cache is the only one.
static bool check(struct request *request, struct nibble_error *error)
{
    *error = (struct nibble_error){ .usage = true };
    if (!request->text)
        strcpy(error->text, "eval needs a text: --text FILE");
    else if (request->html && !request->sweep)
        strcpy(error->text, "--html shows a sweep; add --sweep");
    else if (request->layers && request->sweep)
        strcpy(error->text, "--layers is about one cache, not a --sweep; leave one of them out");
    else if (!request->sweep && request->dtypes.count > 1)
        strcpy(error->text, "several formats are for --sweep; without it, give one");
    request->cache.dtype = request->dtypes.count ? request->dtypes.items[0] : NULL;
    return !error->text[0];
}

static int run(struct request *request, const char *model)
{
    struct nibble_error error;
    request->model = model;
    if (!check(request, &error))
        return cli_fail(&error, request->json);
    int status = ranks_settle(request->cache.joined, request->cache.ranks, request->json);
    if (status < 0)
        status = evaluate(request, &error) ? EXIT_DONE : cli_fail(&error, request->json);
    return status;
}

int command_eval(int argc, char **argv)
{
    struct request request = { .context = 2048 };
    const struct option_row options[] = {
        { "--text", OPTION_TEXT, &request.text, "FILE", "the text (- for standard input)" },
        { "--context", OPTION_INT, &request.context, "N", "tokens per chunk (2048)", 4, 1 << 24 },
        { "--chunks", OPTION_INT, &request.chunks, "N", "only the first N chunks", 1, 1 << 24 },
        { "--against", OPTION_TEXT, &request.against, "FORMAT", "cache to compare with, stored as is, as in float32" },
        { "--needle", OPTION_FLAG, &request.needle, NULL, "also whether a sentence is found again, by its depth" },
        { "--layers", OPTION_FLAG, &request.layers, NULL, "also how far off each layer is, on the first chunk" },
        { "--sweep", OPTION_FLAG, &request.sweep, NULL, "a table of many formats, as is and as planned" },
        { "--html", OPTION_TEXT, &request.html, "FILE", "the sweep as a page with its curve as well" },
        { "--kv-cache-dtype", OPTION_TEXTS, &request.dtypes, "F", "cache format (auto); with --sweep several: F,..." },
        CACHE_FURTHER_ROWS(request.cache),
        RANKS_OPTION_ROW(request.cache),
        { "--threads", OPTION_INT, &request.threads, "N", "threads (all cores)", 1, 256 },
        { "--json", OPTION_FLAG, &request.json, NULL, "as JSON" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble eval MODEL --text FILE [options]",
        .about = "Perplexity over the second half of each chunk of a text; with --against also the KL divergence\n"
                 "between two cache formats, and with --sweep that of many.",
        .example = "nibble eval model.gguf --text prose.txt --kv-cache-dtype nvfp4 --against float32",
        .options = options,
        .positional_min = 1,
        .positional_max = 1,
    };
    int count;
    int status = ranks_begin(&request.cache.joined);
    if (status < 0)
        status = options_parse(&line, argc, argv, &count);
    if (status < 0)
        status = run(&request, argv[0]);
    nibble_ranks_close(request.cache.joined);
    strbuf_free(&request.cache.skip_layers);
    return status;
}
