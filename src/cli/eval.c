// SPDX-License-Identifier: Apache-2.0
// cli/eval.c: perplexity of a text, and with --against how far one cache format strays from another.
#include <stdlib.h>

#include <jansson.h>

#include "base/strbuf.h"
#include "cli/cache_options.h"
#include "cli/cli.h"
#include "cli/quality.h"

struct request {
    const char *text, *against;
    struct cache_options cache;
    long long context, chunks, threads;
    bool json;
};

static void print_json(const struct request *request, const struct quality_score *score, int chunks,
                       struct strbuf *out)
{
    json_t *root = json_pack("{s:f, s:I, s:i, s:s}", "perplexity", score->perplexity, "tokens",
                             (json_int_t)score->counted, "chunks", chunks, "kv_cache_dtype", request->cache.dtype);
    if (request->against) {
        json_object_set_new(root, "against", json_string(request->against));
        json_object_set_new(root, "kld",
                            json_pack("{s:f, s:f, s:f, s:f}", "mean", score->mean, "median", score->median, "p99",
                                      score->p99, "max", score->max));
        json_object_set_new(root, "top1", json_real(score->top1));
    }
    char *text = json_dumps(root, JSON_REAL_PRECISION(9));
    strbuf_add_format(out, "%s\n", text);
    free(text);
    json_decref(root);
}

static void print_text(const struct request *request, const struct quality_score *score, int chunks,
                       struct strbuf *out)
{
    strbuf_add_format(out, "perplexity %.4f over %zu tokens in %d chunks, cache %s\n", score->perplexity,
                      score->counted, chunks, request->cache.dtype);
    if (request->against)
        strbuf_add_format(
            out, "KL divergence from cache %s: mean %.6f, median %.6f, 99 %% %.6f, max %.6f\nsame top token: %.2f %%\n",
            request->against, score->mean, score->median, score->p99, score->max, 100 * score->top1);
}

static bool evaluate_text(const struct nibble_checkpoint *checkpoint, const struct quality_text *text,
                          const struct request *request, struct nibble_error *error)
{
    struct nibble_options options = { .threads = (int)request->threads };
    cache_options_apply(&request->cache, &options);
    options.max_model_len = options.max_model_len ? options.max_model_len : text->context;
    struct nibble_options plain = quality_plain(&options, request->against);
    struct cli_progress progress = { .label = "evaluating", .shown = -1 };
    struct quality_side side = { 0 };
    struct quality_reference reference = { 0 };
    struct quality_score score;
    bool ok = quality_side_open(&side, checkpoint, &options, error)
        && (!request->against || quality_reference_open(&reference, checkpoint, &plain, text, false, error))
        && quality_measure(&side, request->against ? &reference : NULL, text, cli_progress_show, &progress, &score,
                           error);
    quality_side_close(&side);
    quality_reference_close(&reference);
    if (!ok)
        return false;
    struct strbuf out = { 0 };
    (request->json ? print_json : print_text)(request, &score, text->chunks, &out);
    ok = cli_write(out.data, out.len, error);
    strbuf_free(&out);
    return ok;
}

static bool evaluate(const char *model, const struct request *request, struct nibble_error *error)
{
    struct nibble_text content = { 0 };
    struct quality_text text = { 0 };
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, error);
    struct nibble_tokenizer *tokenizer = checkpoint ? nibble_tokenizer_open(checkpoint, error) : NULL;
    bool ok = tokenizer && cli_read(request->text, &content, error)
        && quality_text_cut(&text, tokenizer, request->text, content.data, content.len, (int)request->context,
                            (int)request->chunks, error)
        && evaluate_text(checkpoint, &text, request, error);
    free(content.data);
    free(text.ids);
    nibble_tokenizer_close(tokenizer);
    nibble_checkpoint_close(checkpoint);
    return ok;
}

int command_eval(int argc, char **argv)
{
    struct request request = { .cache.dtype = "auto", .context = 2048 };
    const struct option_row options[] = {
        { "--text", OPTION_TEXT, &request.text, "FILE", "the text (- for standard input)" },
        { "--context", OPTION_INT, &request.context, "N", "tokens per chunk (2048)", 4, 1 << 24 },
        { "--chunks", OPTION_INT, &request.chunks, "N", "only the first N chunks", 1, 1 << 24 },
        { "--against", OPTION_TEXT, &request.against, "FORMAT", "cache format to compare with, as in float32" },
        CACHE_OPTION_ROWS(request.cache),
        { "--threads", OPTION_INT, &request.threads, "N", "threads (all cores)", 1, 256 },
        { "--json", OPTION_FLAG, &request.json, NULL, "as JSON" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble eval MODEL --text FILE [options]",
        .about = "Perplexity over the second half of each chunk of a text; with --against also the KL divergence\n"
                 "between two cache formats.",
        .example = "nibble eval model.gguf --text prose.txt --kv-cache-dtype nvfp4 --against float32",
        .options = options,
        .positional_min = 1,
        .positional_max = 1,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    struct nibble_error error = { .text = "eval needs a text: --text FILE", .usage = true };
    int status = request.text && evaluate(argv[0], &request, &error) ? EXIT_DONE : cli_fail(&error, request.json);
    strbuf_free(&request.cache.skip_layers);
    return status;
}
