// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/generate.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/batch.h"

// A request with what is drawn for it and who hears of it.
struct answer {
    struct request request; // first: the scheduler's chunks name it
    struct nibble_listener listener;
    struct sampling_params sampling;
    int max_tokens, min_tokens;
    int top_logprobs; // -1: nothing is scored
    bool score_prompt;
    int32_t *stop_ids;
    size_t stop_count;
    bool held;          // its last row has not been drawn from, for want of a mask
    float *held_logits; // that row; NULL: this never happened
};

// One row of logits: what is asked of it and what was found.
struct row {
    struct answer *answer; // NULL: it has ended in the meantime
    int position;          // of the token it comes after
    bool last;             // of its text
    bool on_device;        // it is drawn where its logits are; they do not come here
    bool held;             // of an earlier step
    bool late;             // its mask was not computed in this step: it is not drawn from
    const float *logits;
    uint32_t *mask; // NULL: every token may come
    bool finite;
    int32_t drawn; // only where something is
    double log_total;
    struct candidate *top;
    int top_count, rank;
};

static double system_clock(void *context)
{
    (void)context;
    return clock_now();
}

static double now(const struct generator *generator) { return generator->clock(generator->clock_context); }

static int vocabulary_of(const struct generator *generator) { return generator->engine->model.config.vocabulary; }

void generator_open(struct generator *generator, struct engine *engine, const struct nibble_scheduler_options *options)
{
    const struct plan *plan = &engine->plan;
    struct scheduler_options decided_by = { .pools = engine->pools,
                                            .classes = plan->class_count,
                                            .batch_tokens = plan->batch_tokens,
                                            .outputs = plan->outputs,
                                            .running_max = plan->max_num_seqs,
                                            .prefix_cache = !options->no_prefix_cache,
                                            .by_priority = options->by_priority };
    *generator = (struct generator){ .engine = engine,
                                     .clock = options->clock ? options->clock : system_clock,
                                     .clock_context = options->clock_context };
    scheduler_open(&generator->scheduler, &decided_by);
    size_t outputs = (size_t)plan->outputs;
    generator->mask_words = (vocabulary_of(generator) + 31) / 32;
    for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++)
        generator->in_flight_steps[i].rows = memory_new(outputs, sizeof *generator->in_flight_steps[i].rows);
    generator->masks = memory_new(outputs * (size_t)generator->mask_words, sizeof *generator->masks);
    generator->tops = memory_new(outputs * GENERATE_TOP_MAX, sizeof *generator->tops);
    generator->samplers = memory_new((size_t)thread_pool_size(engine->pool), sizeof *generator->samplers);
    for (int i = 0; i < thread_pool_size(engine->pool); i++)
        sampler_open(&generator->samplers[i], vocabulary_of(generator));
}

// ---- requests come and go ----

static void *copied(const void *items, size_t count, size_t size)
{
    void *copy = memory_new(count, size);
    if (count)
        memcpy(copy, items, count * size);
    return copy;
}

static bool check_params(const struct generator *generator, const struct nibble_request *request_params,
                         struct error *err)
{
    const struct engine *engine = generator->engine;
    int longest = engine->plan.max_model_len;
    if (!request_params->prompt_count)
        return fail_usage(err, "the prompt has no tokens; at least one is needed to go on from");
    if (request_params->max_tokens < 0 || request_params->min_tokens < 0
        || request_params->min_tokens > request_params->max_tokens)
        return fail_usage(err, "an answer of %d to %d tokens was asked for; that is no range from 0 on",
                          request_params->min_tokens, request_params->max_tokens);
    if (request_params->top_logprobs < -1 || request_params->top_logprobs > GENERATE_TOP_MAX)
        return fail_usage(err, "%d likeliest tokens were asked for; up to %d are possible",
                          request_params->top_logprobs, GENERATE_TOP_MAX);
    if (request_params->stop_count > (size_t)vocabulary_of(generator))
        return fail_usage(err, "%zu stop ids were given, more than there are tokens", request_params->stop_count);
    if (request_params->prompt_count > (size_t)longest
        || request_params->max_tokens > longest - (int)request_params->prompt_count)
        return fail(err, "a prompt of %zu tokens with an answer of %d is longer than the context of %d tokens%s",
                    request_params->prompt_count, request_params->max_tokens, longest,
                    longest < engine->model.config.context ? "; --max-model-len raises it" : "");
    return engine_check_ids(engine, request_params->prompt, request_params->prompt_count, err)
        && (engine_check_ids(engine, request_params->stop_ids, request_params->stop_count, err)
            || fail_within(err, "a stop id"))
        && sampling_params_check(request_params, vocabulary_of(generator), err);
}

uint64_t generator_add(struct generator *generator, const struct nibble_request *request_params, struct error *err)
{
    if (!check_params(generator, request_params, err))
        return 0;
    struct answer *answer = memory_new(1, sizeof *answer);
    *answer = (struct answer){
        .listener = request_params->listener,
        .max_tokens = request_params->max_tokens,
        .min_tokens = request_params->min_tokens,
        .top_logprobs = request_params->top_logprobs,
        .score_prompt = request_params->score_prompt,
        .stop_ids = copied(request_params->stop_ids, request_params->stop_count, sizeof *request_params->stop_ids),
        .stop_count = request_params->stop_count,
    };
    sampling_params_open(&answer->sampling, request_params, vocabulary_of(generator));
    struct scheduler_params scheduled = { .prompt = request_params->prompt,
                                          .prompt_count = (int)request_params->prompt_count,
                                          .max_tokens = request_params->max_tokens,
                                          .score_prompt = request_params->score_prompt,
                                          .priority = request_params->priority,
                                          .salt = { request_params->cache_salt, request_params->cache_salt_len },
                                          .after = request_params->after };
    scheduler_add(&generator->scheduler, &answer->request, &scheduled, now(generator));
    return answer->request.name;
}

static void finish(struct generator *generator, struct answer *answer, enum nibble_finish reason, const char *error)
{
    struct nibble_usage usage = answer->request.usage;
    usage.finished = now(generator);
    scheduler_remove(&generator->scheduler, &answer->request);
    for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++)
        for (int j = 0; j < generator->in_flight_steps[i].row_count; j++)
            if (generator->in_flight_steps[i].rows[j].answer == answer)
                generator->in_flight_steps[i].rows[j].answer = NULL;
    if (answer->listener.finished)
        answer->listener.finished(answer->listener.context, reason, &usage, error);
    free(answer->stop_ids);
    sampling_params_free(&answer->sampling);
    free(answer->held_logits);
    free(answer);
}

void generator_cancel(struct generator *generator, uint64_t name)
{
    struct request *request = scheduler_find(&generator->scheduler, name);
    if (request)
        finish(generator, (struct answer *)request, NIBBLE_FINISH_CANCELLED, NULL);
}

// Nobody waits for it any more.
static void drop_early(struct generator *generator)
{
    struct engine_result ignored;
    struct in_flight *in_flight = generator->early;
    if (in_flight && in_flight->step)
        engine_finish(generator->engine, in_flight->step, &ignored, &in_flight->err);
    generator->early = NULL;
}

void generator_close(struct generator *generator)
{
    struct scheduler *scheduler = &generator->scheduler;
    while (scheduler->running.first || scheduler->waiting.first) {
        struct request *request = scheduler->running.first ? scheduler->running.first : scheduler->waiting.first;
        finish(generator, (struct answer *)request, NIBBLE_FINISH_CANCELLED, NULL);
    }
    drop_early(generator);
    scheduler_close(scheduler);
    for (int i = 0; i < thread_pool_size(generator->engine->pool); i++)
        sampler_close(&generator->samplers[i]);
    free(generator->samplers);
    for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++)
        free(generator->in_flight_steps[i].rows);
    free(generator->masks);
    free(generator->tops);
    *generator = (struct generator){ 0 };
}

// ---- a step ----

static bool draws(const struct row *row) { return row->last && row->answer->max_tokens > 0; }

static int tokens_left(const struct answer *answer) { return answer->max_tokens - answer->request.usage.answer_tokens; }

static bool may_stop(const struct answer *answer)
{
    return answer->request.usage.answer_tokens + answer->request.promised >= answer->min_tokens;
}

// True when each row needs no more than a token, drawn from unchanged logits. This stays true for the whole answer once
// it is.
static bool is_plain(const struct answer *answer)
{
    const struct nibble_listener *listener = &answer->listener;
    return answer->max_tokens > 0 && !answer->score_prompt && answer->top_logprobs < 0 && !listener->restrict_tokens
        && !listener->choose_token && (may_stop(answer) || !answer->stop_count)
        && sampling_params_are_plain(&answer->sampling);
}

// The rows of the step that was decided, drawn by the device where it can.
static void list_rows(struct generator *generator, struct in_flight *in_flight)
{
    const struct scheduler *scheduler = &generator->scheduler;
    in_flight->row_count = 0;
    for (int i = 0; i < scheduler->chunk_count; i++) {
        const struct chunk *chunk = &scheduler->chunks[i];
        for (int j = 0; j < chunk->outputs; j++) {
            int index = in_flight->row_count++, position = chunk->first + chunk->count - chunk->outputs + j;
            struct answer *answer = (struct answer *)chunk->request;
            answer->held = false; // it was preempted, and its row is computed again
            in_flight->rows[index] = (struct row){
                .answer = answer,
                .position = position,
                .last = position == chunk->request->sequence.count - 1,
                .top = generator->tops + (size_t)index * GENERATE_TOP_MAX,
                .on_device = is_plain(answer)
                    && engine_ask(generator->engine, index, &answer->sampling.sampling, chunk->request->sequence.count),
            };
        }
    }
}

// Rows of earlier steps behind those of this one; the scheduler has left room for them.
static void list_held_rows(struct generator *generator, struct in_flight *in_flight)
{
    for (struct request *request = generator->scheduler.running.first; request; request = request->after) {
        struct answer *answer = (struct answer *)request;
        if (!answer->held || request->sequence.cached < request->sequence.count)
            continue;
        int index = in_flight->row_count++;
        in_flight->rows[index] = (struct row){ .answer = answer,
                                               .position = request->sequence.count - 1,
                                               .last = true,
                                               .held = true,
                                               .logits = answer->held_logits,
                                               .top = generator->tops + (size_t)index * GENERATE_TOP_MAX };
    }
}

static void start_reading(struct generator *generator, struct in_flight *in_flight)
{
    const struct scheduler *scheduler = &generator->scheduler;
    batch_clear(generator->engine);
    for (int i = 0; i < scheduler->chunk_count; i++) {
        const struct chunk *chunk = &scheduler->chunks[i];
        batch_add(generator->engine, &chunk->request->sequence, chunk->count, chunk->outputs);
        in_flight->tokens += chunk->count;
    }
    list_rows(generator, in_flight);
    in_flight->step = engine_start(generator->engine, &in_flight->err);
}

// Decides and starts a step. NULL: there is nothing to read and nothing to draw.
static struct in_flight *start(struct generator *generator, struct in_flight *in_flight)
{
    bool reads = scheduler_decide(&generator->scheduler, now(generator));
    in_flight->tokens = in_flight->row_count = in_flight->step = 0;
    in_flight->computed = false;
    if (reads)
        start_reading(generator, in_flight);
    list_held_rows(generator, in_flight);
    return reads || in_flight->row_count ? in_flight : NULL;
}

static bool are_plain(const struct request_queue *queue)
{
    for (const struct request *request = queue->first; request; request = request->after)
        if (!is_plain((const struct answer *)request))
            return false;
    return true;
}

// Whether the step after this one can be decided now.
static bool may_go_on(const struct generator *generator, const struct in_flight *in_flight)
{
    const struct scheduler *scheduler = &generator->scheduler;
    if (!engine_may_follow(generator->engine, in_flight->step) || !scheduler_has_slack(scheduler)
        || !are_plain(&scheduler->running) || !are_plain(&scheduler->waiting))
        return false;
    for (int i = 0; i < in_flight->row_count && scheduler->waiting.count; i++)
        if (in_flight->rows[i].answer && tokens_left(in_flight->rows[i].answer) == 1)
            return false;
    return true;
}

// The next step, as if this one's results were there.
static void start_early(struct generator *generator, struct in_flight *in_flight)
{
    scheduler_computed(&generator->scheduler);
    in_flight->computed = true;
    for (int i = 0; i < in_flight->row_count; i++)
        if (in_flight->rows[i].answer && tokens_left(in_flight->rows[i].answer) > 1)
            scheduler_promise(&in_flight->rows[i].answer->request, ~i);
    struct in_flight *other = in_flight == generator->in_flight_steps ? in_flight + 1 : generator->in_flight_steps;
    generator->early = start(generator, other);
}

struct masking {
    struct generator *generator;
    struct in_flight *in_flight;
    atomic_int rows_left; // taken from the end, where those that were held are
    atomic_ullong work;   // that the masks have taken so far
};

static bool wants_mask(const struct row *row)
{
    return row->answer && draws(row) && row->answer->listener.restrict_tokens;
}

static void make_masks(void *context, int phase, int part, int parts)
{
    (void)phase, (void)part, (void)parts;
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
        uint64_t work = listener->restrict_tokens(listener->context, tokens_left(row->answer), row->mask);
        atomic_fetch_add(&masking->work, work);
    }
}

// Computes the masks of tokens that listeners allow. A GPU computes the step at the same time.
static void list_masks(struct generator *generator, struct in_flight *in_flight)
{
    struct masking masking = { .generator = generator, .in_flight = in_flight, .rows_left = in_flight->row_count };
    bool any = false;
    for (int i = 0; i < in_flight->row_count; i++)
        any |= wants_mask(&in_flight->rows[i]);
    if (any)
        thread_pool_run(generator->engine->pool, &(struct thread_pool_work){ make_masks, &masking, .phases = 1 });
}

// Rows without their masks stay for a later step.
static void hold_late_rows(struct generator *generator, struct in_flight *in_flight)
{
    size_t vocabulary = (size_t)vocabulary_of(generator);
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
    if (draws(row)) {
        struct draw draw = sampling_params_draw(&answer->sampling);
        draw.ids = request->sequence.ids;
        draw.prompt_count = request->prompt_count;
        draw.count = request->sequence.count;
        draw.mask = row->mask;
        draw.banned = answer->stop_ids;
        draw.banned_count = may_stop(answer) ? 0 : answer->stop_count;
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

// Each part has a sampler of its own; a row's result does not depend on which one drew it.
static void draw_rows(void *context, int phase, int part, int parts)
{
    (void)phase;
    const struct drawing *drawing = context;
    for (int i = part; i < drawing->in_flight->row_count; i += parts)
        draw_row(&drawing->samplers[part], &drawing->in_flight->rows[i]);
}

// Takes the tokens that the device drew. The thread pool draws the others from their logits.
static void take_results(struct generator *generator, struct in_flight *in_flight, const struct engine_result *result)
{
    size_t vocabulary = (size_t)vocabulary_of(generator);
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
        thread_pool_run(generator->engine->pool, &(struct thread_pool_work){ draw_rows, &drawing, .phases = 1 });
}

// ---- telling ----

// The token after a row.
static struct nibble_token token_after(const struct row *row, int32_t id, struct nibble_candidate *top)
{
    struct nibble_token token = { .id = id, .position = row->position + 1, .top = top };
    if (row->answer->top_logprobs < 0)
        return token;
    token.scored = true;
    token.logprob = (float)(row->logits[id] - row->log_total);
    token.top_count = row->top_count;
    for (int i = 0; i < row->top_count; i++)
        top[i] = (struct nibble_candidate){ row->top[i].id, (float)(row->top[i].value - row->log_total) };
    return token;
}

static void tell_prompt_token(const struct row *row)
{
    const struct nibble_listener *listener = &row->answer->listener;
    const int32_t *ids = row->answer->request.sequence.ids;
    struct nibble_candidate top[GENERATE_TOP_MAX];
    if (!row->answer->score_prompt || !listener->prompt_token)
        return;
    if (row->position == 0)
        listener->prompt_token(listener->context, &(struct nibble_token){ .id = ids[0] });
    if (row->position + 1 >= row->answer->request.prompt_count)
        return;
    struct nibble_token token = token_after(row, ids[row->position + 1], top);
    token.rank = row->rank;
    listener->prompt_token(listener->context, &token);
}

static bool stops_at(const struct answer *answer, int32_t id)
{
    for (size_t i = 0; i < answer->stop_count; i++)
        if (answer->stop_ids[i] == id)
            return true;
    return false;
}

// The answer's next token. Returns whether it was the last, with the reason.
static bool take_token(struct generator *generator, const struct row *row, enum nibble_finish *reason)
{
    struct answer *answer = row->answer;
    const struct nibble_listener *listener = &answer->listener;
    struct nibble_candidate top[GENERATE_TOP_MAX];
    int32_t id = row->drawn;
    if (listener->choose_token)
        id = listener->choose_token(listener->context, tokens_left(answer), id);
    assert(id >= 0 && id < vocabulary_of(generator));
    struct nibble_token token = token_after(row, id, top);
    token.stop = stops_at(answer, id);
    scheduler_continue(&generator->scheduler, &answer->request, id);
    if (answer->request.usage.answer_tokens == 1)
        answer->request.usage.first_token = now(generator);
    bool goes_on = (!listener->token || listener->token(listener->context, &token)) && !token.stop;
    *reason = goes_on ? NIBBLE_FINISH_LENGTH : NIBBLE_FINISH_STOP;
    return !goes_on || tokens_left(answer) == 0;
}

// Continues or finishes one answer by its rows, and reports to its listener. Returns how many tokens the answer got.
static int tell_answer(struct generator *generator, const struct row *rows, int count)
{
    struct answer *answer = rows->answer;
    enum nibble_finish reason = NIBBLE_FINISH_LENGTH;
    for (int i = 0; i < count; i++) {
        if (!rows[i].finite) {
            char sentence[256];
            snprintf(sentence, sizeof sentence, LOGITS_NOT_FINITE, rows[i].position);
            generator->scheduler.counts.corrupted++;
            generator->scheduler.counts.corrupted_in_a_row++;
            finish(generator, answer, NIBBLE_FINISH_FAILED, sentence);
            return 0;
        }
        if (!rows[i].held)
            tell_prompt_token(&rows[i]);
    }
    const struct row *last = &rows[count - 1];
    if (last->late)
        return 0;
    bool drawn = draws(last);
    generator->scheduler.counts.corrupted_in_a_row = 0;
    if (last->last && (!drawn || take_token(generator, last, &reason)))
        finish(generator, answer, reason, NULL);
    return drawn;
}

static int tell_rows(struct generator *generator, const struct in_flight *in_flight)
{
    int tokens = 0, count;
    for (int i = 0; i < in_flight->row_count; i += count) {
        const struct row *rows = &in_flight->rows[i];
        for (count = 1; i + count < in_flight->row_count && rows[count].answer == rows->answer; count++)
            ;
        if (rows->answer)
            tokens += tell_answer(generator, rows, count);
    }
    return tokens;
}

// The device failed: so do the requests that were on it.
static bool fail_running(struct generator *generator, const char *sentence)
{
    while (generator->scheduler.running.first)
        finish(generator, (struct answer *)generator->scheduler.running.first, NIBBLE_FINISH_FAILED, sentence);
    return true;
}

bool generator_step(struct generator *generator, struct nibble_step *step)
{
    struct scheduler *scheduler = &generator->scheduler;
    struct engine_result result = { 0 };
    *step = (struct nibble_step){ 0 };
    if (generator->early && !scheduler_is_awaited(scheduler))
        drop_early(generator);
    struct in_flight *in_flight = generator->early ? generator->early : start(generator, generator->in_flight_steps);
    generator->early = NULL;
    if (!in_flight)
        return false;
    step->tokens = in_flight->tokens;
    list_masks(generator, in_flight);
    if (may_go_on(generator, in_flight))
        start_early(generator, in_flight);
    bool reads = in_flight->tokens;
    scheduler->counts.failing = reads
        && (!in_flight->step || !engine_finish(generator->engine, in_flight->step, &result, &in_flight->err));
    if (scheduler->counts.failing)
        return fail_running(generator, in_flight->err.text);
    if (reads && !in_flight->computed)
        scheduler_computed(scheduler);
    take_results(generator, in_flight, &result);
    hold_late_rows(generator, in_flight);
    step->answers = tell_rows(generator, in_flight);
    return true;
}

void generator_stats(const struct generator *generator, struct nibble_scheduler_stats *out)
{
    const struct plan *plan = &generator->engine->plan;
    scheduler_stats(&generator->scheduler, out);
    out->cache_tokens = plan_cache_tokens(plan);
}

void generator_forget(struct generator *generator)
{
    for (int i = 0; i < generator->engine->plan.class_count; i++)
        kv_pool_forget(&generator->engine->pools[i]);
}
