// SPDX-License-Identifier: Apache-2.0
// cli/eval.c: perplexity of a text, and with --against how far one cache format strays from another. Counted are the
// predictions of the second half of each chunk, where every token has at least half a context before it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/options.h"

enum { SLICE_TOKENS = 64 }; // logits are looked at this many tokens at a time

struct request {
    const char *text, *dtype, *against, *device;
    long long context, chunks, threads;
    bool json;
};

// One cache format under test.
struct side {
    struct nibble_engine *engine;
    struct nibble_sequence *sequence;
    float *logits; // (SLICE_TOKENS, vocabulary)
};

struct tally {
    double loss;       // sum of negative log likelihoods
    size_t counted;
    double *kld;       // one per counted prediction, with --against
    size_t agreed;     // predictions whose most likely token is the same
};

static bool side_open(struct side *side, const struct nibble_checkpoint *checkpoint, const struct request *request,
                      const char *dtype, struct nibble_error *error)
{
    struct cli_progress progress = { .label = "loading weights", .shown = -1 };
    struct nibble_options options = { .kv_cache_dtype = dtype,
                                      .device = request->device,
                                      .max_model_len = (int)request->context,
                                      .threads = (int)request->threads,
                                      .progress = cli_progress_show,
                                      .progress_context = &progress };
    side->engine = nibble_engine_open(checkpoint, &options, error);
    if (!side->engine)
        return false;
    side->sequence = nibble_sequence_open(side->engine);
    side->logits = memory_new((size_t)nibble_engine_vocabulary(side->engine) * SLICE_TOKENS, sizeof(float));
    return true;
}

static void side_close(struct side *side)
{
    nibble_sequence_close(side->sequence);
    nibble_engine_close(side->engine);
    free(side->logits);
}

static int most_likely(const float *logits, int vocabulary)
{
    int best = 0;
    for (int i = 1; i < vocabulary; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

// log of the sum of exponentials
static double log_total(const float *logits, int vocabulary)
{
    double highest = logits[most_likely(logits, vocabulary)], sum = 0;
    for (int i = 0; i < vocabulary; i++)
        sum += exp(logits[i] - highest);
    return highest + log(sum);
}

// KL divergence of a from b: the mean under b of log(b / a).
static double divergence(const float *a, double total_a, const float *b, double total_b, int vocabulary)
{
    double sum = 0;
    for (int i = 0; i < vocabulary; i++) {
        double log_b = b[i] - total_b;
        sum += exp(log_b) * (log_b - (a[i] - total_a));
    }
    return sum > 0 ? sum : 0;
}

// One prediction: the logits before `next` on side a and, if there is one, on side b.
static void count(struct tally *tally, const float *a, const float *b, int32_t next, int vocabulary)
{
    double total_a = log_total(a, vocabulary);
    tally->loss += total_a - a[next];
    if (b) {
        tally->kld[tally->counted] = divergence(a, total_a, b, log_total(b, vocabulary), vocabulary);
        tally->agreed += most_likely(a, vocabulary) == most_likely(b, vocabulary);
    }
    tally->counted++;
}

// Reads one chunk from an empty cache on every side. The second side is absent when its engine is.
static bool measure_chunk(struct side sides[2], const int32_t *ids, int context, struct tally *tally, double *done,
                          double share, struct nibble_error *error)
{
    int half = context / 2, vocabulary = nibble_engine_vocabulary(sides[0].engine);
    struct cli_progress progress = { .label = "evaluating", .shown = -1 };
    for (int i = 0; i < 2 && sides[i].engine; i++)
        if (!nibble_sequence_assign(sides[i].sequence, NULL, 0, error)
            || !nibble_sequence_assign(sides[i].sequence, ids, (size_t)half, error))
            return false;
    for (int at = half; at < context - 1; at += SLICE_TOKENS) {
        int slice = context - 1 - at < SLICE_TOKENS ? context - 1 - at : SLICE_TOKENS;
        for (int i = 0; i < 2 && sides[i].engine; i++)
            if (!nibble_sequence_score(sides[i].sequence, ids + at, (size_t)slice, sides[i].logits, error))
                return false;
        for (int i = 0; i < slice; i++) {
            size_t row = (size_t)i * (size_t)vocabulary;
            count(tally, sides[0].logits + row, sides[1].engine ? sides[1].logits + row : NULL, ids[at + i + 1],
                  vocabulary);
        }
        cli_progress_show(&progress,
                          *done + share * (double)(at + slice - half) / (double)(context - 1 - half) * 0.999);
    }
    *done += share;
    return true;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct summary {
    double perplexity;
    double mean, median, p99, max, top1; // of the divergence
};

static struct summary summarise(struct tally *tally)
{
    struct summary summary = { .perplexity = exp(tally->loss / (double)tally->counted) };
    if (!tally->kld)
        return summary;
    qsort(tally->kld, tally->counted, sizeof *tally->kld, compare);
    for (size_t i = 0; i < tally->counted; i++)
        summary.mean += tally->kld[i] / (double)tally->counted;
    summary.median = tally->kld[tally->counted / 2];
    summary.p99 = tally->kld[(size_t)ceil(0.99 * (double)tally->counted) - 1];
    summary.max = tally->kld[tally->counted - 1];
    summary.top1 = (double)tally->agreed / (double)tally->counted;
    return summary;
}

static void print_json(const struct request *request, const struct summary *summary, size_t counted, int chunks,
                       struct strbuf *out)
{
    json_t *root = json_pack("{s:f, s:I, s:i, s:s}", "perplexity", summary->perplexity, "tokens", (json_int_t)counted,
                             "chunks", chunks, "kv_cache_dtype", request->dtype);
    if (request->against) {
        json_object_set_new(root, "against", json_string(request->against));
        json_object_set_new(root, "kld",
                            json_pack("{s:f, s:f, s:f, s:f}", "mean", summary->mean, "median", summary->median, "p99",
                                      summary->p99, "max", summary->max));
        json_object_set_new(root, "top1", json_real(summary->top1));
    }
    char *text = json_dumps(root, JSON_REAL_PRECISION(9));
    strbuf_add_format(out, "%s\n", text);
    free(text);
    json_decref(root);
}

static void print_text(const struct request *request, const struct summary *summary, size_t counted, int chunks,
                       struct strbuf *out)
{
    strbuf_add_format(out, "perplexity %.4f over %zu tokens in %d chunks, cache %s\n", summary->perplexity, counted,
                      chunks, request->dtype);
    if (request->against)
        strbuf_add_format(
            out, "KL divergence from cache %s: mean %.6f, median %.6f, 99 %% %.6f, max %.6f\nsame top token: %.2f %%\n",
            request->against, summary->mean, summary->median, summary->p99, summary->max, 100 * summary->top1);
}

// The text as one run of tokens, without special ones.
static bool read_tokens(const struct nibble_tokenizer *tokenizer, const struct request *request, int32_t **ids,
                        int *chunks, struct nibble_error *error)
{
    struct nibble_text text = { 0 };
    bool ok = cli_read(request->text, &text, error);
    ptrdiff_t count = ok ? nibble_tokenize(tokenizer, text.data, text.len, 0, ids, error) : -1;
    free(text.data);
    if (count < 0)
        return false;
    long long whole = count / request->context;
    *chunks = (int)(request->chunks && request->chunks < whole ? request->chunks : whole);
    if (!*chunks)
        return cli_trouble(error, "%s has %td tokens, less than one chunk of %lld; give more or a smaller --context",
                           request->text, count, request->context);
    for (int i = 0; i < *chunks && nibble_tokenizer_adds_bos(tokenizer) && nibble_token_bos(tokenizer) >= 0; i++)
        (*ids)[i * request->context] = nibble_token_bos(tokenizer);
    return true;
}

static bool measure(struct side sides[2], const struct request *request, const int32_t *ids, int chunks,
                    struct nibble_error *error)
{
    struct tally tally = { 0 };
    double done = 0;
    bool ok = true;
    if (request->against)
        tally.kld = memory_new((size_t)chunks * (size_t)request->context, sizeof *tally.kld);
    for (int i = 0; i < chunks && ok; i++)
        ok = measure_chunk(sides, ids + (size_t)i * (size_t)request->context, (int)request->context, &tally, &done,
                           1.0 / chunks, error);
    cli_progress_show(&(struct cli_progress){ .shown = -1 }, 1);
    if (ok) {
        struct summary summary = summarise(&tally);
        struct strbuf out = { 0 };
        (request->json ? print_json : print_text)(request, &summary, tally.counted, chunks, &out);
        ok = cli_write(out.data, out.len, error);
        strbuf_free(&out);
    }
    free(tally.kld);
    return ok;
}

static bool evaluate(const char *model, const struct request *request, struct nibble_error *error)
{
    struct side sides[2] = { 0 };
    int32_t *ids = NULL;
    int chunks = 0;
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, error);
    struct nibble_tokenizer *tokenizer = checkpoint ? nibble_tokenizer_open(checkpoint, error) : NULL;
    bool ok = tokenizer && read_tokens(tokenizer, request, &ids, &chunks, error)
        && side_open(&sides[0], checkpoint, request, request->dtype, error)
        && (!request->against || side_open(&sides[1], checkpoint, request, request->against, error))
        && measure(sides, request, ids, chunks, error);
    side_close(&sides[0]);
    side_close(&sides[1]);
    free(ids);
    nibble_tokenizer_close(tokenizer);
    nibble_checkpoint_close(checkpoint);
    return ok;
}

int command_eval(int argc, char **argv)
{
    struct request request = { .dtype = "auto", .context = 2048 };
    const struct option_row options[] = {
        { "--text", OPTION_TEXT, &request.text, "FILE", "the text (- for standard input)" },
        { "--context", OPTION_INT, &request.context, "N", "tokens per chunk (2048)", 4, 1 << 24 },
        { "--chunks", OPTION_INT, &request.chunks, "N", "only the first N chunks", 1, 1 << 24 },
        { "--kv-cache-dtype", OPTION_TEXT, &request.dtype, "FORMAT", "cache format (auto)" },
        { "--against", OPTION_TEXT, &request.against, "FORMAT", "cache format to compare with, as in float32" },
        { "--device", OPTION_TEXT, &request.device, "D", "auto, cpu, cuda, cuda:1 (auto: a GPU if it can be used)" },
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
    return request.text && evaluate(argv[0], &request, &error) ? EXIT_DONE : cli_fail(&error, request.json);
}
