// SPDX-License-Identifier: Apache-2.0
// tools/eval_sweep.c: measures many KV cache formats of one model, each against the unquantised cache.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "tools/eval.h"

enum { TIMED_TOKENS = 24 };

// Times decoding: the tokens of the last chunk once more, one at a time; the median counts.
static bool time_decoding(struct quality_side *side, const struct quality_text *text, double *speed, struct error *err)
{
    double seconds[TIMED_TOKENS];
    int timed = text->context / 2 < TIMED_TOKENS ? text->context / 2 : TIMED_TOKENS, first = text->context - timed;
    const int32_t *ids = text->ids + (size_t)(text->chunks - 1) * (size_t)text->context;
    if (!nibble_sequence_assign(side->sequence, ids, (size_t)first, err))
        return false;
    for (int i = 0; i < timed; i++) {
        double start = clock_now();
        if (!nibble_sequence_score(side->sequence, ids + first + i, 1, side->logits, err))
            return false;
        seconds[i] = clock_now() - start;
    }
    qsort(seconds, (size_t)timed, sizeof *seconds, cli_compare_reals);
    *speed = 1 / seconds[timed / 2];
    return true;
}

// State shared by all caches of a sweep.
struct sweep_run {
    struct sweep *sweep;
    const struct nibble_checkpoint *checkpoint;
    const struct nibble_tokenizer *tokenizer;
    const struct quality_text *text;
    const struct nibble_options *options;
    struct quality_reference reference;
};

static bool measure_row(struct sweep_run *s, struct sweep_row *row, struct quality_side *side, struct error *err)
{
    struct strbuf label = { 0 };
    strbuf_add_format(&label, "%s %s", row->format, sweep_stored(row));
    struct cli_progress progress = { .label = label.data, .shown = -1 };
    row->size = quality_size_of(nibble_engine_plan(side->engine));
    bool ok = quality_measure(side, &s->reference, s->text, cli_progress_show, &progress, &row->score, err)
        && time_decoding(side, s->text, &row->decode, err)
        && (!s->sweep->needle || needle_measure(side, s->tokenizer, s->text, &row->needle, err));
    strbuf_free(&label);
    return ok;
}

// Returns the plan as JSON, which identifies what would run; NULL: it is refused, or cannot be made.
static char *plan_text(const struct sweep_run *s, const struct nibble_options *options, struct error *err)
{
    struct nibble_text text = { 0 };
    struct nibble_plan *plan = nibble_plan_make(s->checkpoint, options, err);
    if (plan && nibble_plan_accepted(plan))
        nibble_plan_print(plan, NIBBLE_PLAN_JSON, 0, &text);
    nibble_plan_close(plan);
    return text.data;
}

// Measures one cache, unless its plan equals `seen`. One that cannot run has a row, too. *plan: its plan, or NULL.
static bool try_cache(struct sweep_run *s, struct sweep_row row, const struct nibble_options *options, const char *seen,
                      char **plan, struct error *err)
{
    struct quality_side side = { 0 };
    struct error why;
    *plan = plan_text(s, options, &why);
    if (*plan && seen && !strcmp(*plan, seen))
        return true;
    bool opened = *plan && quality_side_open(&side, s->checkpoint, options, &why);
    if (!opened) {
        row.refused = memory_text(why.text);
        row.refused[strcspn(row.refused, "\n")] = 0; // alternatives are left out here
    }
    bool ok = !opened || measure_row(s, &row, &side, err);
    if (ok)
        s->sweep->rows[s->sweep->count++] = row;
    quality_side_close(&side);
    return ok;
}

// Measures a format as is and, unless that is refused already, as planned.
static bool try_format(struct sweep_run *s, const char *format, struct error *err)
{
    struct nibble_options planned = *s->options, plain = quality_plain(s->options, format);
    char *first = NULL, *second = NULL;
    planned.kv_cache_dtype = format;
    bool ok = try_cache(s, (struct sweep_row){ .format = format, .plain = true }, &plain, NULL, &first, err)
        && (!first || try_cache(s, (struct sweep_row){ .format = format }, &planned, first, &second, err));
    free(first);
    free(second);
    return ok;
}

bool sweep_check(const struct nibble_checkpoint *checkpoint, const struct cache_formats *formats,
                 const struct nibble_options *options, struct error *err)
{
    for (int i = 0; i < formats->count; i++) {
        struct nibble_options planned = *options, plain = quality_plain(options, formats->items[i]);
        planned.kv_cache_dtype = formats->items[i];
        if (!nibble_engine_check(checkpoint, &plain, err) && err->usage)
            return false;
        if (!nibble_engine_check(checkpoint, &planned, err) && err->usage)
            return false;
    }
    return true;
}

bool sweep_measure(struct sweep *sweep, const struct nibble_checkpoint *checkpoint,
                   const struct nibble_tokenizer *tokenizer, const struct quality_text *text,
                   const struct cache_formats *formats, const struct nibble_options *options, struct error *err)
{
    struct sweep_run s = { sweep, checkpoint, tokenizer, text, options };
    struct nibble_options unquantised = quality_plain(options, sweep->against);
    bool ok = quality_reference_open(&s.reference, checkpoint, &unquantised, text, true, err);
    sweep->rows = memory_new((size_t)formats->count * 2, sizeof *sweep->rows);
    for (int i = 0; i < formats->count && ok; i++)
        ok = try_format(&s, formats->items[i], err);
    quality_reference_close(&s.reference);
    return ok;
}

void sweep_free(struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++)
        free(sweep->rows[i].refused);
    free(sweep->rows);
}
