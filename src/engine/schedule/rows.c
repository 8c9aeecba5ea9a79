// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/rows.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// ---- masks ----

struct masking {
    struct generator *generator;
    struct in_flight *in_flight;
    atomic_int rows_left; // taken from the end, where those that were held are
    atomic_ullong work;   // that the masks have taken so far
};

static bool wants_mask(const struct row *row)
{
    return row->answer && row_is_drawn(row) && row->answer->listener.restrict_tokens;
}

static void make_masks(void *context, int step, int chunk, int chunks)
{
    (void)step, (void)chunk, (void)chunks;
    struct masking *masking = context;
    size_t words = (size_t)masking->generator->mask_words;
    for (int i; (i = atomic_fetch_sub(&masking->rows_left, 1) - 1) >= 0;) {
        struct row *row = &masking->in_flight->rows[i];
        if (!wants_mask(row))
            continue;
        row->late = atomic_load(&masking->work) >= GENERATE_MASK_WORK_MAX;
        if (row->late)
            continue;
        const struct nibble_listener *listener = &row->answer->listener;
        row->mask = masking->generator->masks + (size_t)i * words;
        memset(row->mask, 0xFF, words * sizeof *row->mask);
        uint64_t work = listener->restrict_tokens(listener->context, answer_tokens_left(row->answer), row->mask);
        atomic_fetch_add(&masking->work, work);
    }
}

void rows_mask(struct generator *generator, struct in_flight *in_flight)
{
    struct masking masking = { .generator = generator, .in_flight = in_flight, .rows_left = in_flight->row_count };
    bool any = false;
    for (int i = 0; i < in_flight->row_count; i++)
        any |= wants_mask(&in_flight->rows[i]);
    if (any)
        thread_pool_run(generator->engine->pool, &(struct thread_pool_work){ make_masks, &masking, .steps = 1 });
}

void rows_hold(struct generator *generator, struct in_flight *in_flight)
{
    size_t vocabulary = (size_t)rows_vocabulary(generator);
    for (int i = 0; i < in_flight->row_count; i++) {
        const struct row *row = &in_flight->rows[i];
        struct answer *answer = row->answer;
        if (answer && row->held)
            answer->held = row->late;
        if (!answer || !row->late || row->held)
            continue;
        if (!answer->held_logits)
            answer->held_logits = memory_new(vocabulary, sizeof *answer->held_logits);
        memcpy(answer->held_logits, row->logits, vocabulary * sizeof *answer->held_logits);
        answer->held = true;
        scheduler_hold(&answer->request);
    }
}

// ---- draws ----

// How many tokens are likelier than a prompt's next one, and itself.
static int rank_of(const float *logits, int vocabulary, int32_t id)
{
    int rank = 0;
    for (int i = 0; i < vocabulary; i++)
        rank += logits[i] >= logits[id];
    return rank;
}

static void draw_row(struct sampler *sampler, struct row *row)
{
    struct answer *answer = row->answer;
    int vocabulary = sampler->vocabulary;
    if (row->on_device || !answer || row->late)
        return;
    const struct request *request = &answer->request;
    row->finite = logits_finite(row->logits, vocabulary);
    if (!row->finite)
        return;
    if (row_is_drawn(row)) {
        struct draw draw = sampling_params_draw(&answer->sampling);
        draw.ids = request->sequence.ids;
        draw.prompt_count = request->prompt_count;
        draw.count = request->sequence.count;
        draw.mask = row->mask;
        draw.banned = answer->stop_ids;
        draw.banned_count = answer_may_stop(answer) ? 0 : answer->stop_count;
        row->drawn = sampler_draw(sampler, row->logits, &draw);
    }
    if (answer->top_logprobs >= 0) {
        row->log_total = logits_logsumexp(row->logits, vocabulary);
        row->top_count = logits_top(row->logits, vocabulary, row->top, answer->top_logprobs);
        if (answer->score_prompt && row->position + 1 < request->prompt_count)
            row->rank = rank_of(row->logits, vocabulary, request->sequence.ids[row->position + 1]);
    }
}

struct drawing {
    struct sampler *samplers;
    struct in_flight *in_flight;
};

// Each chunk has a sampler of its own; a row's result does not depend on which one drew it.
static void draw_rows(void *context, int step, int chunk, int chunks)
{
    (void)step;
    const struct drawing *drawing = context;
    for (int i = chunk; i < drawing->in_flight->row_count; i += chunks)
        draw_row(&drawing->samplers[chunk], &drawing->in_flight->rows[i]);
}

void rows_draw(struct generator *generator, struct in_flight *in_flight, const struct engine_result *result)
{
    size_t vocabulary = (size_t)rows_vocabulary(generator);
    bool all_drawn = true;
    for (int i = 0; i < in_flight->row_count; i++) {
        struct row *row = &in_flight->rows[i];
        if (!row->held)
            row->logits = result->logits + (size_t)i * vocabulary;
        row->drawn = row->on_device ? result->drawn[i] : 0;
        row->finite = row->drawn != ENGINE_NOT_FINITE;
        all_drawn &= row->on_device;
    }
    struct drawing drawing = { generator->samplers, in_flight };
    if (!all_drawn)
        thread_pool_run(generator->engine->pool, &(struct thread_pool_work){ draw_rows, &drawing, .steps = 1 });
}
