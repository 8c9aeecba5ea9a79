// SPDX-License-Identifier: Apache-2.0
// tools/eval.c: perplexity of a text, with --against how far one cache format strays from another, and with --sweep how
// far many do.
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "cli/cache_options.h"
#include "cli/cli.h"
#include "tools/eval.h"
#include "cli/ranks.h"
#include "tools/report_page.h"

struct request {
    const char *model, *text, *against, *html;
    struct option_texts dtypes;
    struct cache_options cache;
    long long context, chunks, threads;
    bool sweep, needle, layers, json;
};

// What a sweep measures when no format was named.
static const struct option_texts swept = { { "bfloat16", "fp8", "int8_per_token_head", "fp8/nvfp4", "nvfp4/fp8",
                                             "int4_per_token_head", "nvfp4_4over6", "nvfp4" },
                                           8 };

// What a command line means, once it is known that all of it can be had.
struct evaluation {
    const struct request *request;
    struct nibble_checkpoint *checkpoint;
    struct nibble_tokenizer *tokenizer;
    struct nibble_options options;
    struct cache_formats formats; // of a sweep
    struct output_file page;      // of a sweep
    struct quality_text text;
};

static const char *against_of(const struct request *request)
{
    return request->against || !request->sweep ? request->against : "float32";
}

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
        json_array_append_new(layers,
                              json_pack("{s:f, s:f, s:f}", "k", result->layers[i].k, "v", result->layers[i].v,
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
        strbuf_add_format(out,
                          "KL divergence from cache %s: mean %.6f, median %.6f, 99 %% %.6f, max %.6f\nsame top token: "
                          "%.2f %%\n",
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
static bool measure_layers(const struct evaluation *eval, struct result *result, struct nibble_error *error)
{
    struct cli_progress progress = { .label = "measuring layers", .shown = -1 };
    struct nibble_options shown = eval->options;
    shown.calibrating = cli_progress_show;
    shown.progress_context = &progress;
    result->layers = memory_new((size_t)result->layer_count, sizeof *result->layers);
    return nibble_layer_errors(eval->checkpoint, &shown, eval->text.ids, (size_t)eval->text.context, result->layers,
                               error);
}

static bool evaluate_one(struct evaluation *eval, struct strbuf *out, struct nibble_error *error)
{
    const struct request *request = eval->request;
    const struct quality_text *text = &eval->text;
    struct nibble_options plain = quality_plain(&eval->options, request->against);
    struct cli_progress progress = { .label = "evaluating", .shown = -1 };
    struct quality_side side = { 0 };
    struct quality_reference reference = { 0 };
    struct result result = { .chunks = text->chunks };
    bool ok = quality_side_open(&side, eval->checkpoint, &eval->options, error)
        && (!request->against || quality_reference_open(&reference, eval->checkpoint, &plain, text, false, error))
        && quality_measure(&side, request->against ? &reference : NULL, text, cli_progress_show, &progress,
                           &result.score, error)
        && (!request->needle || needle_measure(&side, eval->tokenizer, text, &result.needle, error));
    result.layer_count = ok && request->layers ? nibble_engine_layers(side.engine) : 0;
    quality_side_close(&side);
    quality_reference_close(&reference);
    ok = ok && (!request->layers || measure_layers(eval, &result, error));
    if (ok)
        (request->json ? print_json : print_text)(request, &result, out);
    free(result.layers);
    return ok;
}

// ---- many ---------------------------------------------------------------------------------------------------------

static bool evaluate_many(struct evaluation *eval, struct strbuf *out, struct nibble_error *error)
{
    const struct request *request = eval->request;
    struct sweep sweep = { .against = against_of(request),
                           .needle = request->needle,
                           .context = eval->text.context,
                           .chunks = eval->text.chunks };
    struct strbuf name = { 0 }, json = { 0 }; // whatever bytes a path has, the report is text
    strbuf_add_clean(&name, bytes_of(request->model));
    sweep.model = strbuf_text(&name);
    bool ok = sweep_measure(&sweep, eval->checkpoint, eval->tokenizer, &eval->text, &eval->formats, &eval->options,
                            error);
    if (ok) {
        sweep_print_json(&sweep, &json);
        if (request->json)
            strbuf_add(out, json.data, json.len);
        else
            sweep_print_table(&sweep, out);
        ok = report_page_finish(&eval->page, json.data, error);
    }
    sweep_free(&sweep);
    strbuf_free(&name);
    strbuf_free(&json);
    return ok;
}

// ---- the command --------------------------------------------------------------------------------------------------

// Everything that headers and flags can tell, before the text is read and weights are loaded.
static bool prepare(struct evaluation *eval, struct nibble_error *error)
{
    const struct request *request = eval->request;
    const struct option_texts *formats = request->dtypes.count ? &request->dtypes : &swept;
    const char *against = against_of(request);
    eval->options.threads = (int)request->threads;
    cache_options_apply(&request->cache, &eval->options);
    eval->options.max_model_len = eval->options.max_model_len ? eval->options.max_model_len : (int)request->context;
    struct nibble_options reference = quality_plain(&eval->options, against);
    return (eval->checkpoint = nibble_checkpoint_open(request->model, NIBBLE_NEED_ALL, error))
        && (!request->sweep || cache_formats_read(formats, &eval->formats, error))
        && output_file_open(&eval->page, request->html, "--html", error)
        && (request->sweep ? sweep_check(eval->checkpoint, &eval->formats, &eval->options, error)
                           : nibble_engine_check(eval->checkpoint, &eval->options, error))
        && (!against || nibble_engine_check(eval->checkpoint, &reference, error))
        && (eval->tokenizer = nibble_tokenizer_open(eval->checkpoint, error));
}

static bool read_text(struct evaluation *eval, struct nibble_error *error)
{
    const struct request *request = eval->request;
    struct nibble_text content = { 0 };
    bool ok = cli_read(request->text, &content, error)
        && quality_text_cut(&eval->text, eval->tokenizer, request->text, content.data, content.len,
                            (int)request->context, (int)request->chunks, error);
    free(content.data);
    return ok;
}

static bool evaluate(const struct request *request, struct nibble_error *error)
{
    struct evaluation eval = { .request = request };
    struct strbuf out = { 0 };
    bool ok = prepare(&eval, error) && read_text(&eval, error)
        && (request->sweep ? evaluate_many : evaluate_one)(&eval, &out, error)
        && nibble_checkpoint_check(eval.checkpoint, error) && cli_write(out.data, out.len, error);
    strbuf_free(&out);
    free(eval.text.ids);
    output_file_close(&eval.page);
    cache_formats_free(&eval.formats);
    nibble_tokenizer_close(eval.tokenizer);
    nibble_checkpoint_close(eval.checkpoint);
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
        .required = { "MODEL" },
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
