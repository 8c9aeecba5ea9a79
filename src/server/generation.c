// SPDX-License-Identifier: Apache-2.0
#include "server/generation.h"

#include "server/check.h"
#include "server/kind.h"
#include "server/worker.h"

// Runs on any thread of the engine; no other thread uses the choice meanwhile.
static uint64_t restrict_tokens(void *context, int tokens_left, uint32_t *mask)
{
    struct choice *choice = context;
    const struct api *api = choice->job->api;
    (void)tokens_left;
    uint64_t work = matcher_restrict(choice->matcher, mask);
    for (int32_t id = tokenizer_size(api->tokenizer); id < api->logits; id++) // rows of logits without a token
        mask[id / 32] &= ~(UINT32_C(1) << id % 32);
    return work;
}

// Set only where the answer is to be closed at max_tokens.
static int32_t choose_token(void *context, int tokens_left, int32_t drawn)
{
    struct choice *choice = context;
    return matcher_choose(choice->matcher, tokens_left, drawn);
}

// The output that new tokens go to: the client's as it comes, or withheld until it is checked.
static struct output *answer_of(struct choice *choice)
{
    choice->job->touched |= !choice->job->checked;
    return choice->job->checked ? &choice->withheld : &choice->step_output;
}

static void on_prompt_token(void *context, const struct nibble_token *token)
{
    struct choice *choice = context;
    struct output *answer = answer_of(choice);
    output_add(answer, token, worker_now());
    answer->prompt_tokens++;
}

// False: the only call that the answer may have is complete.
static bool watch_call(struct choice *choice, struct bytes text)
{
    if (!choice->call_watch)
        return true;
    tool_reader_add(choice->call_watch, text);
    return !tool_reader_is_over(choice->call_watch);
}

// A stop token is not text, unless include_stop_str_in_output is set. False: a stop string is complete, or the answer's
// only call.
static bool add_text(struct choice *choice, const struct nibble_token *token)
{
    if (token->stop && !choice->stop.include)
        return true;
    struct strbuf piece = { 0 };
    struct strbuf *answer = &answer_of(choice)->text;
    size_t before = answer->len;
    detokenizer_add(&choice->detokenizer, token->id, &piece);
    choice->stop_hit = stop_add(&choice->stop, strbuf_bytes(&piece), answer);
    strbuf_free(&piece);
    struct bytes text = { answer->data + before, answer->len - before };
    return watch_call(choice, text) && choice->stop_hit < 0;
}

static bool on_token(void *context, const struct nibble_token *token)
{
    struct choice *choice = context;
    output_add(answer_of(choice), token, worker_now());
    if (token->stop)
        choice->stop_id = token->id;
    bool goes_on = add_text(choice, token);
    if (choice->matcher && !token->stop) {
        matcher_accept(choice->matcher, token->id);
        goes_on &= !matcher_done(choice->matcher);
    }
    return goes_on;
}

// Adds the rest of the text, unless a stop string ended it.
static void finish_text(struct choice *choice)
{
    struct output *answer = answer_of(choice);
    struct strbuf rest = { 0 };
    if (choice->stop_hit >= 0)
        return;
    detokenizer_finish(&choice->detokenizer, &rest);
    choice->stop_hit = stop_add(&choice->stop, strbuf_bytes(&rest), &answer->text);
    strbuf_free(&rest);
    if (choice->stop_hit < 0)
        stop_finish(&choice->stop, &answer->text);
}

// Validates a whole answer. An invalid one is generated again while there are attempts left (false); after that it is
// an error, or, without strictness, the answer.
static bool settle(struct choice *choice, const struct nibble_usage *usage)
{
    struct job *job = choice->job;
    struct error cause;
    bool strict;
    if (check_text(job, strbuf_bytes(&choice->withheld.text), &strict, &cause)) {
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
    // An answer continues a text: its first token keeps the space that begins it.
    choice->detokenizer =
        (struct detokenizer){ .tokenizer = job->api->tokenizer, .skip_special = params->skip_special, .started = true };
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

bool generation_start(struct choice *choice, uint64_t after, struct error *err)
{
    const struct request_params *params = &choice->job->params;
    open_choice(choice);
    bool masked = choice->matcher;
    struct nibble_request request = params->request;
    request.prompt = choice->prompt->ids;
    request.prompt_count = choice->prompt->count;
    request.sampling.choice = choice->number;
    request.after = after;
    request.listener = (struct nibble_listener){
        .context = choice,
        .restrict_tokens = masked ? restrict_tokens : NULL,
        .choose_token = masked && params->close_at_max_tokens ? choose_token : NULL,
        .prompt_token = on_prompt_token,
        .token = on_token,
        .finished = on_finished,
    };
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
