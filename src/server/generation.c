// SPDX-License-Identifier: Apache-2.0
#include "server/generation.h"

#include "base/clock.h"
#include "server/check.h"
#include "server/kind.h"
#include "server/worker.h"

// Runs on any thread of the engine; no other thread uses the choice meanwhile.
static uint64_t restrict_tokens(void *context, int tokens_left, uint32_t *mask)
{
    struct choice *choice = context;
    const struct api *api = choice->job->api;
    (void)tokens_left;
    uint64_t work;
    if (!thought_restrict(choice, mask, &work))
        work = matcher_restrict(choice->matcher, mask);
    for (int32_t id = tokenizer_size(api->tokenizer); id < api->logits; id++) // rows of logits without a token
        mask[id / 32] &= ~(UINT32_C(1) << id % 32);
    return work;
}

// Set only where the answer is to be closed at max_tokens, or its thought may be.
static int32_t choose_token(void *context, int tokens_left, int32_t drawn)
{
    struct choice *choice = context;
    bool free = true;
    int32_t id = thought_chooses(choice) ? thought_choose(choice, tokens_left, drawn, &free) : drawn;
    return free && choice->matcher && choice->job->params.close_at_max_tokens
        ? matcher_choose(choice->matcher, tokens_left, id)
        : id;
}

// The output that new tokens go to: the client's as it comes, or withheld until it is checked.
static struct output *answer_of(struct choice *choice)
{
    choice->job->touched |= !choice->job->checked;
    return choice->job->checked ? &choice->withheld : &choice->step_output;
}

// Adds a token with so many of the likeliest; there may be more, for the prompt's or the answer's sake.
static void add_scored(struct output *output, const struct nibble_token *token, int tops)
{
    struct nibble_token added = *token;
    added.top_count = tops < 0 ? 0 : tops < token->top_count ? tops : token->top_count;
    output_add(output, &added, clock_now());
}

static bool echoes_scores(const struct request_params *params)
{
    return params->echo && params->request.top_logprobs >= 0;
}

// The n of a prompt share its scores, and so do attempts.
static bool scores_prompt(const struct choice *choice)
{
    return choice->job->params.prompt_logprobs >= 0 && choice->number == 0 && choice->attempt == 0;
}

static void on_prompt_token(void *context, const struct nibble_token *token)
{
    struct choice *choice = context;
    const struct request_params *params = &choice->job->params;
    if (scores_prompt(choice))
        add_scored(&choice->prompt_scores, token, params->prompt_logprobs);
    if (!echoes_scores(params))
        return;
    struct output *answer = answer_of(choice);
    add_scored(answer, token, params->request.top_logprobs);
    answer->prompt_tokens++;
}

// ---- text: thoughts as they come, the answer through the search for stop strings -----------------------------------

// Content that was appended to the answer's text behind `before`.
static void note_content(struct choice *choice, size_t before)
{
    struct output *answer = answer_of(choice);
    size_t len = answer->text.len - before;
    output_mark(answer, false, len);
    if (choice->call_watch && len)
        tool_reader_add(choice->call_watch, (struct bytes){ answer->text.data + before, len });
    choice->call_over = choice->call_watch && tool_reader_is_over(choice->call_watch);
}

static void add_content(void *context, struct bytes text)
{
    struct choice *choice = context;
    struct strbuf *answer = &answer_of(choice)->text;
    size_t before = answer->len;
    if (choice->stop_hit >= 0)
        return;
    choice->stop_hit = stop_add(&choice->stop, text, answer);
    note_content(choice, before);
}

// Text in which no stop string is searched for, and that none goes across.
static void add_unsearched(struct choice *choice, bool reasoning, struct bytes text)
{
    struct output *answer = answer_of(choice);
    size_t before = answer->text.len;
    if (choice->stop_hit >= 0)
        return;
    if (choice->stop.held.len)
        stop_finish(&choice->stop, &answer->text);
    if (!reasoning)
        strbuf_add(&answer->text, text.data, text.len);
    note_content(choice, before);
    if (reasoning)
        output_add_text(answer, true, text);
}

static void add_reasoning(void *context, struct bytes text)
{
    struct choice *choice = context;
    if (choice->job->keeps_markers || !choice->job->drops_reasoning)
        add_unsearched(choice, !choice->job->keeps_markers, text);
}

static void add_marker(void *context, struct bytes text)
{
    struct choice *choice = context;
    if (choice->job->keeps_markers)
        add_unsearched(choice, false, text);
}

// Takes in a token's text. A stop token has none, unless include_stop_str_in_output is set. False: the grammar's answer
// is whole.
static bool take_token(struct choice *choice, const struct nibble_token *token)
{
    struct strbuf piece = { 0 };
    bool goes_on = true;
    if (!token->stop || choice->stop.include)
        detokenizer_add(&choice->detokenizer, token->id, &piece);
    if (choice->thought.splitter) {
        goes_on = thought_take(choice, token, strbuf_bytes(&piece));
    } else {
        add_content(choice, strbuf_bytes(&piece));
        if (choice->matcher && !token->stop) {
            matcher_accept(choice->matcher, token->id);
            goes_on = !matcher_done(choice->matcher);
        }
    }
    strbuf_free(&piece);
    return goes_on;
}

static bool on_token(void *context, const struct nibble_token *token)
{
    struct choice *choice = context;
    add_scored(answer_of(choice), token, choice->job->params.request.top_logprobs);
    if (token->stop)
        choice->stop_id = token->id;
    return take_token(choice, token) && choice->stop_hit < 0 && !choice->call_over;
}

// Adds the rest of the text, unless a stop string ended it.
static void finish_text(struct choice *choice)
{
    struct output *answer = answer_of(choice);
    struct strbuf rest = { 0 };
    if (choice->stop_hit >= 0)
        return;
    detokenizer_finish(&choice->detokenizer, &rest);
    if (choice->thought.splitter)
        thought_finish(choice, strbuf_bytes(&rest));
    else
        add_content(choice, strbuf_bytes(&rest));
    strbuf_free(&rest);
    size_t before = answer->text.len;
    if (choice->stop_hit < 0)
        stop_finish(&choice->stop, &answer->text);
    output_mark(answer, false, answer->text.len - before);
}

// The text of a checked answer without its thoughts.
static struct strbuf checked_text(const struct choice *choice)
{
    const struct output *withheld = &choice->withheld;
    const struct job *job = choice->job;
    struct strbuf text = { 0 };
    struct bytes rest = strbuf_bytes(&withheld->text);
    if (job->keeps_markers && !job->reasoning->calls_in_headers) {
        reasoning_content(job->reasoning, job->prompt_end, rest, &text);
        return text;
    }
    for (int i = 0; i < withheld->run_count; i++) {
        struct output_run run = withheld->runs[i];
        strbuf_add(&text, rest.data, run.reasoning ? 0 : run.len);
        rest = bytes_from(rest, run.len);
    }
    strbuf_add(&text, rest.data, rest.len);
    return text;
}

// Validates a whole answer. An invalid one is generated again while there are attempts left (false); after that it is
// an error, or, without strictness, the answer.
static bool settle(struct choice *choice, const struct nibble_usage *usage)
{
    struct job *job = choice->job;
    struct error cause;
    bool strict;
    struct strbuf text = checked_text(choice);
    bool valid = check_text(job, strbuf_bytes(&text), &strict, &cause);
    strbuf_free(&text);
    if (valid) {
        if (choice->attempt)
            check_warn(job, "choice %d met its schema at attempt %d", choice->index, choice->attempt + 1);
        return true;
    }
    if (choice->attempt + 1 < CHECK_ATTEMPTS && !job->error.status && !atomic_load(&job->cancelled)) {
        choice->discarded_tokens += usage->answer_tokens;
        return false;
    }
    check_warn(job, "choice %d does not meet its schema: %s", choice->index, cause.text);
    if (strict) {
        api_fail(&job->error, 422, job->schema ? "response_format" : "tools",
                 "%d answers were generated, and none met the schema. The last one: %s", choice->attempt + 1,
                 cause.text);
        kind_rename_field(job, &job->error);
    }
    return true;
}

// The times of a choice begin with its first attempt, and its tokens are those of all.
static struct nibble_usage usage_of_all(const struct choice *choice, const struct nibble_usage *last)
{
    struct nibble_usage usage = choice->attempt ? choice->first_usage : *last;
    usage.answer_tokens = last->answer_tokens + choice->discarded_tokens;
    usage.preemptions = last->preemptions;
    usage.finished = last->finished;
    return usage;
}

static void end_choice(struct choice *choice, enum nibble_finish reason, const struct nibble_usage *usage)
{
    output_move(&choice->withheld, &choice->step_output);
    choice->step_output.finished = true;
    choice->step_output.reason = reason;
    choice->step_output.stop_string = choice->stop_hit;
    choice->step_output.stop_id = choice->stop_id;
    choice->step_output.usage = usage_of_all(choice, usage);
    choice->step_output.discarded_tokens = choice->discarded_tokens;
    choice->job->running--;
    choice->job->touched = true;
}

static void on_finished(void *context, enum nibble_finish reason, const struct nibble_usage *usage,
                        const char *sentence)
{
    struct choice *choice = context;
    struct job *job = choice->job;
    if (reason == NIBBLE_FINISH_STOP && choice->matcher && matcher_forced(choice->matcher))
        reason = NIBBLE_FINISH_LENGTH; // max_tokens ended it, not the model
    finish_text(choice);
    choice->name = 0;
    if (reason == NIBBLE_FINISH_FAILED)
        api_fail(&job->error, 500, NULL, "%s", sentence);
    bool whole = reason == NIBBLE_FINISH_STOP && choice->stop_hit < 0; // a part cannot be valid
    if (job->checked && whole && !settle(choice, usage)) {
        if (!choice->attempt++)
            choice->first_usage = *usage;
        output_clear(&choice->withheld);
        choice->again = true;
        job->waiting++;
        return;
    }
    end_choice(choice, reason, usage);
}

static void open_choice(struct choice *choice)
{
    const struct job *job = choice->job;
    const struct request_params *params = &job->params;
    stop_free(&choice->stop);
    matcher_close(choice->matcher);
    choice->stop_hit = choice->stop_id = -1;
    choice->call_over = false;
    // An answer continues a text: its first token keeps the space that begins it.
    choice->detokenizer = (struct detokenizer){ .tokenizer = job->api->tokenizer,
                                                .skip_special = params->skip_special,
                                                .shown = job->reasoning ? &job->api->reasoning_tokens : NULL,
                                                .started = true };
    thought_begin(choice, &(struct reasoning_sink){ choice, add_reasoning, add_content, add_marker });
    choice->stop =
        (struct stop){ .strings = params->stops, .count = params->stop_count, .include = params->include_stop };
    if (job->grammar) { // a call is watched for only without one
        choice->matcher = matcher_open(job->grammar, api_vocabulary(job->api));
    } else if (job->tools && job->one_call) {
        choice->call_watch = tool_reader_open(job->tool_form, job->tools, &(struct tool_sink){ 0 });
        tool_reader_end_with_call(choice->call_watch);
    }
}

// Gives each attempt another seed, the same one from call to call. Greedy sampling would repeat its tokens, so it
// changes to temperature 1.
static void draw_otherwise(struct nibble_sampling *sampling, int attempt)
{
    bool greedy = sampling->temperature == 0;
    sampling->seed = (greedy ? 0 : sampling->seed) + (uint64_t)attempt;
    sampling->temperature = greedy ? 1 : sampling->temperature;
}

void generation_listen(struct choice *choice, struct nibble_listener *listener)
{
    open_choice(choice);
    bool masked = choice->matcher, closes = masked && choice->job->params.close_at_max_tokens;
    *listener = (struct nibble_listener){
        .context = choice,
        .restrict_tokens = masked ? restrict_tokens : NULL,
        .choose_token = thought_chooses(choice) || closes ? choose_token : NULL,
        .prompt_token = on_prompt_token,
        .token = on_token,
        .finished = on_finished,
    };
}

bool generation_start(struct choice *choice, uint64_t after, struct error *err)
{
    const struct request_params *params = &choice->job->params;
    struct nibble_request request = params->request;
    request.prompt = choice->prompt->ids;
    request.prompt_count = choice->prompt->count;
    request.sampling.choice = choice->number;
    request.score_prompt = echoes_scores(params) || scores_prompt(choice);
    if (scores_prompt(choice) && request.top_logprobs < params->prompt_logprobs)
        request.top_logprobs = params->prompt_logprobs;
    request.after = after;
    generation_listen(choice, &request.listener);
    if (choice->attempt)
        draw_otherwise(&request.sampling, choice->attempt);
    choice->name = nibble_scheduler_add(choice->job->worker->scheduler, &request, err);
    return choice->name;
}

void generation_retry(struct job *job)
{
    struct error err;
    for (int i = 0; i < job->started && job->waiting; i++) {
        struct choice *choice = &job->choices[i];
        if (!choice->again)
            continue;
        choice->again = false;
        job->waiting--;
        if (!generation_start(choice, 0, &err)) {
            api_fail(&job->error, 400, NULL, "%s", err.text);
            end_choice(choice, NIBBLE_FINISH_FAILED, &choice->first_usage);
        }
    }
}

void generation_drop(struct job *job)
{
    for (int i = 0; i < job->choice_count && job->waiting; i++)
        if (job->choices[i].again) {
            job->choices[i].again = false;
            job->waiting--;
            end_choice(&job->choices[i], NIBBLE_FINISH_CANCELLED, &job->choices[i].first_usage);
        }
}
