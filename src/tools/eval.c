// SPDX-License-Identifier: Apache-2.0
// tools/eval.c: `nibble eval`: perplexity of a text, with --against the KL divergence between two formats, and with
// --sweep that of many.
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "tools/eval.h"
#include "cli/ranks.h"
#include "tools/output.h"

struct eval_command {
    const char *model, *text, *against, *html;
    struct option_texts dtypes;
    struct nibble_options engine;
    int context, chunks;
    bool sweep, needle, layers, json;
};

// The formats of a sweep when none is given.
static const struct option_texts swept = { { "bfloat16", "fp8", "int8_per_token_head", "fp8/nvfp4", "nvfp4/fp8",
                                             "int4_per_token_head", "nvfp4_4over6", "nvfp4" },
                                           8 };

struct evaluation {
    const struct eval_command *command;
    struct nibble_checkpoint *checkpoint;
    struct nibble_tokenizer *tokenizer;
    struct cache_formats formats; // of a sweep
    struct output_file page;      // of a sweep
    struct quality_text text;
};

static const char *against_of(const struct eval_command *command)
{
    return command->against || !command->sweep ? command->against : "float32";
}

// ---- one cache ----------------------------------------------------------------------------------------------------

struct eval_result {
    struct quality_score score;
    struct needle_score needle;
    struct nibble_layer_error *layers; // heap, or NULL
    int layer_count, chunks;
};

static const char *cache_name(const struct eval_command *command)
{
    return command->engine.kv_plan       ? command->engine.kv_plan
        : command->engine.kv_cache_dtype ? command->engine.kv_cache_dtype
                                         : "auto";
}

static json_t *json_of_layers(const struct eval_result *result)
{
    json_t *layers = json_array();
    for (int i = 0; i < result->layer_count; i++)
        json_array_append_new(layers,
                              json_pack("{s:f, s:f, s:f}", "k", result->layers[i].k, "v", result->layers[i].v,
                                        "attention", result->layers[i].out));
    return layers;
}

static void print_json(const struct eval_command *command, const struct eval_result *result, struct strbuf *out)
{
    const struct quality_score *score = &result->score;
    json_t *root = json_pack("{s:f, s:I, s:i, s:s}", "perplexity", score->perplexity, "tokens",
                             (json_int_t)score->counted, "chunks", result->chunks, "kv_cache_dtype",
                             cache_name(command));
    if (command->against) {
        json_object_set_new(root, "against", json_string(command->against));
        json_object_set_new(root, "kld", quality_json_kld(score));
        json_object_set_new(root, "top1", json_real(score->top1));
    }
    if (command->needle)
        json_object_set_new(root, "recall", needle_json(&result->needle));
    if (command->layers)
        json_object_set_new(root, "layers", json_of_layers(result));
    cli_add_json(out, root, JSON_REAL_PRECISION(9));
}

static void print_text(const struct eval_command *command, const struct eval_result *result, struct strbuf *out)
{
    const struct quality_score *score = &result->score;
    strbuf_add_format(out, "perplexity %.4f over %zu tokens in %d chunks, cache %s\n", score->perplexity,
                      score->counted, result->chunks, cache_name(command));
    if (command->against)
        strbuf_add_format(out,
                          "KL divergence from cache %s: mean %.6f, median %.6f, 99 %% %.6f, max %.6f\nsame top token: "
                          "%.2f %%\n",
                          command->against, score->mean, score->median, score->p99, score->max, 100 * score->top1);
    if (command->needle) {
        strbuf_add_format(out, "recall of a needle: %.4f; by depth", result->needle.mean);
        for (int i = 0; i < NEEDLE_DEPTHS; i++)
            strbuf_add_format(out, " %.4f", result->needle.likely[i]);
        strbuf_add_byte(out, '\n');
    }
    if (command->layers)
        strbuf_add_format(out, "%5s  %9s  %9s  %9s\n", "layer", "keys", "values", "attention");
    for (int i = 0; i < result->layer_count; i++)
        strbuf_add_format(out, "%5d  %7.2f %%  %7.2f %%  %7.2f %%\n", i, 100 * result->layers[i].k,
                          100 * result->layers[i].v, 100 * result->layers[i].out);
}

// Called after the engines are closed, because it opens one of its own.
static bool measure_layers(const struct evaluation *eval, struct eval_result *result, struct error *err)
{
    struct cli_progress progress = { .label = "measuring layers", .shown = -1 };
    struct nibble_options shown = eval->command->engine;
    shown.calibrating = cli_progress_show;
    shown.progress_context = &progress;
    result->layers = memory_new((size_t)result->layer_count, sizeof *result->layers);
    return nibble_layer_errors(eval->checkpoint, &shown, eval->text.ids, (size_t)eval->text.context, result->layers,
                               err);
}

static bool evaluate_one(struct evaluation *eval, struct strbuf *out, struct error *err)
{
    const struct eval_command *command = eval->command;
    const struct quality_text *text = &eval->text;
    struct nibble_options plain = quality_plain(&command->engine, command->against);
    struct cli_progress progress = { .label = "evaluating", .shown = -1 };
    struct quality_side side = { 0 };
    struct quality_reference reference = { 0 };
    struct eval_result result = { .chunks = text->chunks };
    bool ok = quality_side_open(&side, eval->checkpoint, &command->engine, err)
        && (!command->against || quality_reference_open(&reference, eval->checkpoint, &plain, text, false, err))
        && quality_measure(&side, command->against ? &reference : NULL, text, cli_progress_show, &progress,
                           &result.score, err)
        && (!command->needle || needle_measure(&side, eval->tokenizer, text, &result.needle, err));
    result.layer_count = ok && command->layers ? nibble_engine_layers(side.engine) : 0;
    quality_side_close(&side);
    quality_reference_close(&reference);
    ok = ok && (!command->layers || measure_layers(eval, &result, err));
    if (ok)
        (command->json ? print_json : print_text)(command, &result, out);
    free(result.layers);
    return ok;
}

// ---- many ---------------------------------------------------------------------------------------------------------

static bool evaluate_many(struct evaluation *eval, struct strbuf *out, struct error *err)
{
    const struct eval_command *command = eval->command;
    struct sweep sweep = { .against = against_of(command),
                           .needle = command->needle,
                           .context = eval->text.context,
                           .chunks = eval->text.chunks };
    struct strbuf name = { 0 }, json = { 0 }; // whatever bytes a path has, the report is text
    strbuf_add_clean(&name, bytes_of(command->model));
    sweep.model = strbuf_text(&name);
    bool ok = sweep_measure(&sweep, eval->checkpoint, eval->tokenizer, &eval->text, &eval->formats, &command->engine,
                            err);
    if (ok) {
        sweep_print_json(&sweep, &json);
        if (command->json)
            strbuf_add(out, json.data, json.len);
        else
            sweep_print_table(&sweep, out);
        ok = output_file_finish_page(&eval->page, json.data, err);
    }
    sweep_free(&sweep);
    strbuf_free(&name);
    strbuf_free(&json);
    return ok;
}

// ---- the command --------------------------------------------------------------------------------------------------

// Checks headers and flags before the text is read and weights are loaded.
static bool prepare(struct evaluation *eval, struct error *err)
{
    const struct eval_command *command = eval->command;
    const struct option_texts *formats = command->dtypes.count ? &command->dtypes : &swept;
    const char *against = against_of(command);
    struct nibble_options reference = quality_plain(&command->engine, against);
    return (eval->checkpoint = nibble_checkpoint_open(command->model, NIBBLE_NEED_ALL, err))
        && (!command->sweep || cache_formats_read(formats, &eval->formats, err))
        && output_file_open(&eval->page, command->html, "--html", err)
        && (command->sweep ? sweep_check(eval->checkpoint, &eval->formats, &command->engine, err)
                           : nibble_engine_check(eval->checkpoint, &command->engine, err))
        && (!against || nibble_engine_check(eval->checkpoint, &reference, err))
        && (eval->tokenizer = nibble_tokenizer_open(eval->checkpoint, err));
}

static bool evaluate(const struct eval_command *command, struct error *err)
{
    struct evaluation eval = { .command = command };
    struct strbuf out = { 0 };
    bool ok = prepare(&eval, err)
        && quality_text_read(&eval.text, eval.tokenizer, command->text, command->context, command->chunks, err)
        && (command->sweep ? evaluate_many : evaluate_one)(&eval, &out, err)
        && nibble_checkpoint_check(eval.checkpoint, err) && cli_write(out.data, out.len, err);
    strbuf_free(&out);
    free(eval.text.ids);
    output_file_close(&eval.page);
    cache_formats_free(&eval.formats);
    nibble_tokenizer_close(eval.tokenizer);
    nibble_checkpoint_close(eval.checkpoint);
    return ok;
}

// Checks the combination of options; the format of a single cache is the only one.
static bool check(struct eval_command *command, struct error *err)
{
    if (!command->text)
        return fail_usage(err, "eval needs a text: --text FILE");
    if (command->html && !command->sweep)
        return fail_usage(err, "--html shows a sweep; add --sweep");
    if (command->layers && command->sweep)
        return fail_usage(err, "--layers is about one cache, not a --sweep; leave one of them out");
    if (!command->sweep && command->dtypes.count > 1)
        return fail_usage(err, "several formats are for --sweep; without it, give one");
    command->engine.kv_cache_dtype = command->dtypes.count ? command->dtypes.items[0] : NULL;
    command->engine.max_model_len = command->engine.max_model_len ? command->engine.max_model_len : command->context;
    return true;
}

static int run(struct eval_command *command, const char *model)
{
    struct error err;
    command->model = model;
    if (!check(command, &err))
        return cli_fail(&err, command->json);
    int status = ranks_settle(&command->engine, command->json);
    if (status < 0)
        status = evaluate(command, &err) ? EXIT_DONE : cli_fail(&err, command->json);
    return status;
}

int command_eval(int argc, char **argv)
{
    struct eval_command command = { .context = 2048 };
    const struct option_row options[] = {
        { "--text", OPTION_TEXT, &command.text, "FILE", "the text (- for standard input)" },
        { "--context", OPTION_INT, &command.context, "N", "tokens per chunk (2048)", 4, 1 << 24 },
        { "--chunks", OPTION_INT, &command.chunks, "N", "only the first N chunks", 1, 1 << 24 },
        { "--against", OPTION_TEXT, &command.against, "FORMAT", "cache to compare with, stored as is, as in float32" },
        { "--needle", OPTION_FLAG, &command.needle, NULL, "also whether a sentence is found again, by its depth" },
        { "--layers", OPTION_FLAG, &command.layers, NULL, "also how far off each layer is, on the first chunk" },
        { "--sweep", OPTION_FLAG, &command.sweep, NULL, "a table of many formats, as is and as planned" },
        { "--html", OPTION_TEXT, &command.html, "FILE", "the sweep as a page with its curve as well" },
        { "--kv-cache-dtype", OPTION_TEXTS, &command.dtypes, "F", "cache format (auto); with --sweep several: F,..." },
        ENGINE_FURTHER_ROWS(command.engine),
        RANKS_OPTION_ROW(command.engine),
        { "--threads", OPTION_INT, &command.engine.threads, "N", "threads (all cores)", 1, 256 },
        { "--json", OPTION_FLAG, &command.json, NULL, "as JSON" },
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
    int status = ranks_begin(&command.engine.ranks);
    if (status < 0)
        status = options_parse(&line, argc, argv, &count);
    if (status < 0)
        status = run(&command, argv[0]);
    nibble_ranks_close(command.engine.ranks);
    return status;
}
