// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/generate.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/batch.h"
#include "engine/schedule/rows.h"

static double system_clock(void *context)
{
    (void)context;
    return clock_now();
}

static double now(const struct generator *generator) { return generator->clock(generator->clock_context); }

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
    generator->mask_words = (rows_vocabulary(generator) + 31) / 32;
    for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++)
        generator->in_flight_steps[i].rows = memory_new(outputs, sizeof *generator->in_flight_steps[i].rows);
    generator->masks = memory_new(outputs * (size_t)generator->mask_words, sizeof *generator->masks);
    generator->tops = memory_new(outputs * GENERATE_TOP_MAX, sizeof *generator->tops);
    generator->samplers = memory_new((size_t)thread_pool_size(engine->pool), sizeof *generator->samplers);
    for (int i = 0; i < thread_pool_size(engine->pool); i++)
        sampler_open(&generator->samplers[i], rows_vocabulary(generator));
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
        return fail_usage(err, "the prompt has no tokens; at least one is needed to continue");
    if (request_params->max_tokens < 0 || request_params->min_tokens < 0
        || request_params->min_tokens > request_params->max_tokens)
        return fail_usage(err, "an answer of %d to %d tokens was asked for; that is no range from 0 on",
                          request_params->min_tokens, request_params->max_tokens);
    if (request_params->top_logprobs < -1 || request_params->top_logprobs > GENERATE_TOP_MAX)
        return fail_usage(err, "%d likeliest tokens were asked for; up to %d are possible",
                          request_params->top_logprobs, GENERATE_TOP_MAX);
    if (request_params->stop_count > (size_t)rows_vocabulary(generator))
        return fail_usage(err, "%zu stop ids were given, more than there are tokens", request_params->stop_count);
    if (request_params->prompt_count > (size_t)longest
        || request_params->max_tokens > longest - (int)request_params->prompt_count)
        return fail(err, "a prompt of %zu tokens with an answer of %d is longer than the context of %d tokens%s",
                    request_params->prompt_count, request_params->max_tokens, longest,
                    longest < engine->model.config.context ? "; --max-model-len raises it" : "");
    return engine_check_ids(engine, request_params->prompt, request_params->prompt_count, err)
        && (engine_check_ids(engine, request_params->stop_ids, request_params->stop_count, err)
            || fail_within(err, "a stop id"))
        && sampling_params_check(request_params, rows_vocabulary(generator), err);
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
    sampling_params_open(&answer->sampling, request_params, rows_vocabulary(generator));
    scheduler_add(&generator->scheduler, &answer->request, request_params, now(generator));
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
static void drop_overlapped(struct generator *generator)
{
    struct engine_result ignored;
    struct in_flight *in_flight = generator->overlapped;
    if (in_flight && in_flight->step)
        engine_finish(generator->engine, in_flight->step, &ignored, &in_flight->err);
    generator->overlapped = NULL;
}

void generator_close(struct generator *generator)
{
    struct scheduler *scheduler = &generator->scheduler;
    while (scheduler->running.first || scheduler->waiting.first) {
        struct request *request = scheduler->running.first ? scheduler->running.first : scheduler->waiting.first;
        finish(generator, (struct answer *)request, NIBBLE_FINISH_CANCELLED, NULL);
    }
    drop_overlapped(generator);
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

// True when each row needs no more than a token, drawn from unchanged logits. This stays true for the whole answer once
// it is.
static bool is_plain(const struct answer *answer)
{
    const struct nibble_listener *listener = &answer->listener;
    return answer->max_tokens > 0 && !answer->score_prompt && answer->top_logprobs < 0 && !listener->restrict_tokens
        && !listener->choose_token && (answer_may_stop(answer) || !answer->stop_count)
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
                    && engine_queue_sampling(generator->engine, index, &answer->sampling.sampling,
                                             chunk->request->sequence.count),
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
        if (in_flight->rows[i].answer && answer_tokens_left(in_flight->rows[i].answer) == 1)
            return false;
    return true;
}

// The next step, as if this one's results were there.
static void start_overlapped(struct generator *generator, struct in_flight *in_flight)
{
    scheduler_computed(&generator->scheduler);
    in_flight->computed = true;
    for (int i = 0; i < in_flight->row_count; i++)
        if (in_flight->rows[i].answer && answer_tokens_left(in_flight->rows[i].answer) > 1)
            scheduler_add_placeholder(&in_flight->rows[i].answer->request, ~i);
    struct in_flight *other = in_flight == generator->in_flight_steps ? in_flight + 1 : generator->in_flight_steps;
    generator->overlapped = start(generator, other);
}

// ---- delivering ----

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

static void deliver_prompt_token(const struct row *row)
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
        id = listener->choose_token(listener->context, answer_tokens_left(answer), id);
    assert(id >= 0 && id < rows_vocabulary(generator));
    struct nibble_token token = token_after(row, id, top);
    token.stop = stops_at(answer, id);
    scheduler_continue(&generator->scheduler, &answer->request, id);
    if (answer->request.usage.answer_tokens == 1)
        answer->request.usage.first_token = now(generator);
    bool goes_on = (!listener->token || listener->token(listener->context, &token)) && !token.stop;
    *reason = goes_on ? NIBBLE_FINISH_LENGTH : NIBBLE_FINISH_STOP;
    return !goes_on || answer_tokens_left(answer) == 0;
}

// Continues or finishes one answer by its rows, and reports to its listener. Returns how many tokens the answer got.
static int deliver_answer(struct generator *generator, const struct row *rows, int count)
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
            deliver_prompt_token(&rows[i]);
    }
    const struct row *last = &rows[count - 1];
    if (last->late)
        return 0;
    bool drawn = row_is_drawn(last);
    generator->scheduler.counts.corrupted_in_a_row = 0;
    if (last->last && (!drawn || take_token(generator, last, &reason)))
        finish(generator, answer, reason, NULL);
    return drawn;
}

static int deliver_rows(struct generator *generator, const struct in_flight *in_flight)
{
    int tokens = 0, count;
    for (int i = 0; i < in_flight->row_count; i += count) {
        const struct row *rows = &in_flight->rows[i];
        for (count = 1; i + count < in_flight->row_count && rows[count].answer == rows->answer; count++)
            ;
        if (rows->answer)
            tokens += deliver_answer(generator, rows, count);
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
    if (generator->overlapped && !scheduler_is_awaited(scheduler))
        drop_overlapped(generator);
    struct in_flight *in_flight = generator->overlapped ? generator->overlapped
                                                        : start(generator, generator->in_flight_steps);
    generator->overlapped = NULL;
    if (!in_flight)
        return false;
    step->tokens = in_flight->tokens;
    rows_mask(generator, in_flight);
    if (may_go_on(generator, in_flight))
        start_overlapped(generator, in_flight);
    bool reads = in_flight->tokens;
    scheduler->counts.failing = reads
        && (!in_flight->step || !engine_finish(generator->engine, in_flight->step, &result, &in_flight->err));
    if (scheduler->counts.failing)
        return fail_running(generator, in_flight->err.text);
    if (reads && !in_flight->computed)
        scheduler_computed(scheduler);
    rows_draw(generator, in_flight, &result);
    rows_hold(generator, in_flight);
    step->answers = deliver_rows(generator, in_flight);
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
