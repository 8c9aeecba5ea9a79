// SPDX-License-Identifier: Apache-2.0
// cli/eval_sweep.c: many caches of one model, one after the other, beside one that is not quantised.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/eval.h"

enum { TIMED_TOKENS = 24 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Tokens of the last chunk once more, one at a time; the median counts.
static bool time_decoding(struct quality_side *side, const struct quality_text *text, double *speed,
                          struct nibble_error *error)
{
    double seconds[TIMED_TOKENS];
    int timed = text->context / 2 < TIMED_TOKENS ? text->context / 2 : TIMED_TOKENS, first = text->context - timed;
    const int32_t *ids = text->ids + (size_t)(text->chunks - 1) * (size_t)text->context;
    if (!nibble_sequence_assign(side->sequence, ids, (size_t)first, error))
        return false;
    for (int i = 0; i < timed; i++) {
        double start = now();
        if (!nibble_sequence_score(side->sequence, ids + first + i, 1, side->logits, error))
            return false;
        seconds[i] = now() - start;
    }
    qsort(seconds, (size_t)timed, sizeof *seconds, compare);
    *speed = 1 / seconds[timed / 2];
    return true;
}

static bool measure_row(struct sweep *sweep, struct sweep_row *row, struct quality_side *side,
                        struct quality_reference *reference, const struct nibble_tokenizer *tokenizer,
                        const struct quality_text *text, struct nibble_error *error)
{
    struct strbuf label = { 0 };
    strbuf_add_format(&label, "%s%s", row->format, row->plain ? " as is" : "");
    struct cli_progress progress = { .label = label.data, .shown = -1 };
    row->size = quality_size_of(nibble_engine_plan(side->engine));
    bool ok = quality_measure(side, reference, text, cli_progress_show, &progress, &row->score, error)
        && time_decoding(side, text, &row->decode, error)
        && (!sweep->needle || needle_measure(side, tokenizer, text, &row->needle, error));
    strbuf_free(&label);
    return ok;
}

// A plan for programs is the whole of what would run.
static char *plan_text(const struct quality_side *side)
{
    struct nibble_text text = { 0 };
    nibble_plan_print(nibble_engine_plan(side->engine), NIBBLE_PLAN_JSON, 0, &text);
    return text.data;
}

// One cache; a row is added unless *seen says that the very same has one. A cache that cannot run has a row, too.
static bool try_cache(struct sweep *sweep, const char *format, bool plain, char **seen,
                      const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                      struct quality_reference *reference, const struct nibble_tokenizer *tokenizer,
                      const struct quality_text *text, struct nibble_error *error)
{
    struct quality_side side = { 0 };
    struct sweep_row row = { .format = format, .plain = plain };
    struct nibble_error why;
    bool ok = true;
    if (!quality_side_open(&side, checkpoint, options, &why)) {
        if (*seen)
            return true;
        row.refused = strdup(why.text);
        row.refused[strcspn(row.refused, "\n")] = 0; // what would run instead is no matter here
        sweep->rows[sweep->count++] = row;
        *seen = strdup("");
        return !why.usage || cli_trouble(error, "%s", why.text);
    }
    char *plan = plan_text(&side);
    if (!*seen || strcmp(*seen, plan)) {
        ok = measure_row(sweep, &row, &side, reference, tokenizer, text, error);
        if (ok)
            sweep->rows[sweep->count++] = row;
    }
    quality_side_close(&side);
    free(*seen);
    *seen = plan;
    return ok;
}

bool sweep_measure(struct sweep *sweep, const struct nibble_checkpoint *checkpoint,
                   const struct nibble_tokenizer *tokenizer, const struct quality_text *text,
                   const struct cache_formats *formats, const struct nibble_options *options,
                   struct nibble_error *error)
{
    struct quality_reference reference;
    struct nibble_options unquantised = quality_plain(options, sweep->against);
    bool ok = quality_reference_open(&reference, checkpoint, &unquantised, text, true, error);
    sweep->rows = memory_new((size_t)formats->count * 2, sizeof *sweep->rows);
    for (int i = 0; i < formats->count && ok; i++) {
        char *seen = NULL;
        struct nibble_options planned = *options, plain = quality_plain(options, formats->items[i]);
        planned.kv_cache_dtype = formats->items[i];
        ok = try_cache(sweep, formats->items[i], true, &seen, checkpoint, &plain, &reference, tokenizer, text, error)
            && try_cache(sweep, formats->items[i], false, &seen, checkpoint, &planned, &reference, tokenizer, text,
                         error);
        free(seen);
    }
    quality_reference_close(&reference);
    return ok;
}

void sweep_free(struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++)
        free(sweep->rows[i].refused);
    free(sweep->rows);
}
