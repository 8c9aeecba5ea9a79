// SPDX-License-Identifier: Apache-2.0
#include "cli/quality.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/cli.h"

enum { SLICE_TOKENS = 64 }; // logits are looked at this many tokens at a time

#define KEPT_MAX ((size_t)2 << 30) // bytes of logits

// ---- text ---------------------------------------------------------------------------------------------------------

bool quality_text_cut(struct quality_text *text, const struct nibble_tokenizer *tokenizer, const char *name,
                      const char *data, size_t len, int context, int chunks_max, struct error *err)
{
    *text = (struct quality_text){ .context = context };
    ptrdiff_t count = nibble_tokenize(tokenizer, data, len, 0, &text->ids, err);
    if (count < 0)
        return false;
    ptrdiff_t whole = count / context;
    text->chunks = (int)(chunks_max && chunks_max < whole ? chunks_max : whole);
    if (!text->chunks)
        return fail(err, "%s has %td tokens, less than one chunk of %d; give more or a smaller --context", name, count,
                    context);
    for (int i = 0; i < text->chunks && nibble_tokenizer_adds_bos(tokenizer) && nibble_token_bos(tokenizer) >= 0; i++)
        text->ids[(size_t)i * (size_t)context] = nibble_token_bos(tokenizer);
    return true;
}

bool quality_text_read(struct quality_text *text, const struct nibble_tokenizer *tokenizer, const char *path,
                       int context, int chunks_max, struct error *err)
{
    struct nibble_text content = { 0 };
    bool ok = cli_read(path, &content, err)
        && quality_text_cut(text, tokenizer, path, content.data, content.len, context, chunks_max, err);
    free(content.data);
    return ok;
}

// The first position of a chunk that is scored. The last position has no next token to be scored on.
static int first_counted(const struct quality_text *text) { return text->context / 2; }

static int counted_of_chunk(const struct quality_text *text) { return text->context - 1 - first_counted(text); }

// ---- engines ------------------------------------------------------------------------------------------------------

struct nibble_options quality_plain(const struct nibble_options *options, const char *kv_cache_dtype)
{
    struct nibble_options plain = *options;
    plain.kv_cache_dtype = kv_cache_dtype;
    plain.kv_cache_dtype_skip_layers = plain.kv_plan = NULL;
    plain.kv_transform = "none";
    plain.kv_scale = "amax";
    plain.kv_sink_pages = "0";
    plain.attention_kernel = NULL;
    return plain;
}

bool quality_side_open(struct quality_side *side, const struct nibble_checkpoint *checkpoint,
                       const struct nibble_options *options, struct error *err)
{
    *side = (struct quality_side){ .engine = cli_engine_open(checkpoint, options, err) };
    if (!side->engine)
        return false;
    side->sequence = nibble_sequence_open(side->engine);
    side->logits = memory_new((size_t)nibble_engine_vocabulary(side->engine) * SLICE_TOKENS, sizeof(float));
    return true;
}

void quality_side_close(struct quality_side *side)
{
    nibble_sequence_close(side->sequence);
    nibble_engine_close(side->engine);
    free(side->logits);
    *side = (struct quality_side){ 0 };
}

// Reads the tokens before the predictions that count, from an empty cache.
static bool side_begin(struct quality_side *side, const struct quality_text *text, int chunk, struct error *err)
{
    const int32_t *ids = text->ids + (size_t)chunk * (size_t)text->context;
    return nibble_sequence_assign(side->sequence, NULL, 0, err)
        && nibble_sequence_assign(side->sequence, ids, (size_t)first_counted(text), err);
}

static bool side_score(struct quality_side *side, const struct quality_text *text, int chunk, int at, int count,
                       float *logits, struct error *err)
{
    const int32_t *ids = text->ids + (size_t)chunk * (size_t)text->context + at;
    return nibble_sequence_score(side->sequence, ids, (size_t)count, logits, err);
}

struct quality_size quality_size_of(const struct nibble_plan *plan)
{
    struct nibble_text text = { 0 };
    nibble_plan_print(plan, NIBBLE_PLAN_JSON, 0, &text);
    json_t *root = json_loadb(text.data, text.len, 0, NULL), *layers = json_object_get(root, "layers"), *layer;
    struct quality_size size = { 0 };
    double sides = 0;
    size_t index;
    json_array_foreach (layers, index, layer) {
        double k_bits = json_real_value(json_object_get(layer, "k_bits"));
        double v_bits = json_real_value(json_object_get(layer, "v_bits")); // 0 for MLA, where the latent counts as K
        size.bits += k_bits + v_bits;
        size.token_bytes += (double)json_integer_value(json_object_get(layer, "bytes_per_token"));
        sides += (k_bits > 0) + (v_bits > 0);
    }
    size.bits /= sides > 0 ? sides : 1;
    json_decref(root);
    free(text.data);
    return size;
}

// ---- the reference ------------------------------------------------------------------------------------------------

static float *kept_row(const struct quality_reference *reference, const struct quality_text *text, int vocabulary,
                       int chunk, int at)
{
    size_t row = (size_t)chunk * (size_t)counted_of_chunk(text) + (size_t)(at - first_counted(text));
    return reference->kept + row * (size_t)vocabulary;
}

static bool keep_all(struct quality_reference *reference, const struct quality_text *text, struct error *err)
{
    int vocabulary = nibble_engine_vocabulary(reference->side.engine);
    struct cli_progress progress = { .label = "reading without quantisation", .shown = -1 };
    for (int chunk = 0; chunk < text->chunks; chunk++) {
        if (!side_begin(&reference->side, text, chunk, err))
            return false;
        for (int at = first_counted(text); at < text->context - 1; at += SLICE_TOKENS) {
            int count = text->context - 1 - at < SLICE_TOKENS ? text->context - 1 - at : SLICE_TOKENS;
            float *rows = kept_row(reference, text, vocabulary, chunk, at);
            if (!side_score(&reference->side, text, chunk, at, count, rows, err))
                return false;
        }
        cli_progress_show(&progress, (chunk + 1.0) / text->chunks);
    }
    quality_side_close(&reference->side);
    return true;
}

bool quality_reference_open(struct quality_reference *reference, const struct nibble_checkpoint *checkpoint,
                            const struct nibble_options *options, const struct quality_text *text, bool keep,
                            struct error *err)
{
    *reference = (struct quality_reference){ 0 };
    if (!quality_side_open(&reference->side, checkpoint, options, err))
        return false;
    size_t rows = (size_t)text->chunks * (size_t)counted_of_chunk(text);
    size_t row_bytes = (size_t)nibble_engine_vocabulary(reference->side.engine) * sizeof(float);
    if (!keep || rows > KEPT_MAX / row_bytes)
        return true;
    reference->kept = memory_new(rows, row_bytes);
    return keep_all(reference, text, err);
}

void quality_reference_close(struct quality_reference *reference)
{
    quality_side_close(&reference->side);
    free(reference->kept);
    *reference = (struct quality_reference){ 0 };
}

// The reference's logits at positions `at` to `at + count - 1` of a chunk; positions are asked for in order. NULL: it
// failed.
static const float *reference_rows(struct quality_reference *reference, const struct quality_text *text, int vocabulary,
                                   int chunk, int at, int count, struct error *err)
{
    if (reference->kept)
        return kept_row(reference, text, vocabulary, chunk, at);
    if ((at == first_counted(text) && !side_begin(&reference->side, text, chunk, err))
        || !side_score(&reference->side, text, chunk, at, count, reference->side.logits, err))
        return NULL;
    return reference->side.logits;
}

// ---- comparing ----------------------------------------------------------------------------------------------------

struct quality_tally {
    double loss; // sum of negative log likelihoods
    size_t counted;
    double *kld;   // one per counted prediction, with a reference
    size_t agreed; // predictions whose most likely token is the same
};

static int most_likely(const float *logits, int vocabulary)
{
    int best = 0;
    for (int i = 1; i < vocabulary; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

double quality_log_total(const float *logits, int vocabulary)
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

// Adds one prediction: the logits before `next` on side a and, if there is one, of the reference b.
static void count_prediction(struct quality_tally *tally, const float *a, const float *b, int32_t next, int vocabulary)
{
    double total_a = quality_log_total(a, vocabulary);
    tally->loss += total_a - a[next];
    if (b) {
        tally->kld[tally->counted] = divergence(a, total_a, b, quality_log_total(b, vocabulary), vocabulary);
        tally->agreed += most_likely(a, vocabulary) == most_likely(b, vocabulary);
    }
    tally->counted++;
}

static bool measure_slice(struct quality_side *side, struct quality_reference *reference,
                          const struct quality_text *text, int chunk, int at, int count, struct quality_tally *tally,
                          struct error *err)
{
    int vocabulary = nibble_engine_vocabulary(side->engine);
    const int32_t *next = text->ids + (size_t)chunk * (size_t)text->context + at + 1;
    const float *rows = NULL;
    if (!side_score(side, text, chunk, at, count, side->logits, err)
        || (reference && !(rows = reference_rows(reference, text, vocabulary, chunk, at, count, err))))
        return false;
    for (int i = 0; i < count; i++) {
        size_t row = (size_t)i * (size_t)vocabulary;
        count_prediction(tally, side->logits + row, rows ? rows + row : NULL, next[i], vocabulary);
    }
    return true;
}

static struct quality_score summarise(struct quality_tally *tally)
{
    struct quality_score score = { .counted = tally->counted, .perplexity = exp(tally->loss / (double)tally->counted) };
    if (!tally->kld)
        return score;
    qsort(tally->kld, tally->counted, sizeof *tally->kld, cli_compare_reals);
    for (size_t i = 0; i < tally->counted; i++)
        score.mean += tally->kld[i] / (double)tally->counted;
    score.median = tally->kld[tally->counted / 2];
    score.p99 = tally->kld[(size_t)ceil(0.99 * (double)tally->counted) - 1];
    score.max = tally->kld[tally->counted - 1];
    score.top1 = (double)tally->agreed / (double)tally->counted;
    return score;
}

json_t *quality_json_kld(const struct quality_score *score)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean", score->mean, "median", score->median, "p99", score->p99, "max",
                     score->max);
}

bool quality_measure(struct quality_side *side, struct quality_reference *reference, const struct quality_text *text,
                     void (*progress)(void *context, double done), void *progress_context, struct quality_score *score,
                     struct error *err)
{
    struct quality_tally tally = { 0 };
    size_t all = (size_t)text->chunks * (size_t)counted_of_chunk(text);
    bool ok = true;
    if (reference)
        tally.kld = memory_new(all, sizeof *tally.kld);
    for (int chunk = 0; chunk < text->chunks && ok; chunk++) {
        ok = side_begin(side, text, chunk, err);
        for (int at = first_counted(text); at < text->context - 1 && ok; at += SLICE_TOKENS) {
            int count = text->context - 1 - at < SLICE_TOKENS ? text->context - 1 - at : SLICE_TOKENS;
            ok = measure_slice(side, reference, text, chunk, at, count, &tally, err);
            if (ok && progress)
                progress(progress_context, (double)tally.counted / (double)all);
        }
    }
    if (ok)
        *score = summarise(&tally);
    free(tally.kld);
    return ok;
}
