// SPDX-License-Identifier: Apache-2.0
#include "server/follow.h"

#include "server/access.h"
#include "server/worker.h"

// On any thread of the engine; the choice's own things are nobody else's meanwhile.
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

// Only where the answer is to be closed at max_tokens.
static int32_t choose_token(void *context, int tokens_left, int32_t drawn)
{
    struct choice *choice = context;
    return matcher_choose(choice->matcher, tokens_left, drawn);
}

static void hear_prompt_token(void *context, const struct nibble_token *token)
{
    struct choice *choice = context;
    mail_add(&choice->draft, token, worker_now());
    choice->draft.prompt_tokens++;
    choice->job->touched = true;
}

// False: the only call that there may be has come.
static bool watch_call(struct choice *choice, struct bytes text)
{
    if (!choice->call_watch)
        return true;
    tool_reader_add(choice->call_watch, text);
    return !tool_reader_is_over(choice->call_watch);
}

// A stop token is not text, unless it was asked for. False: a stop string is complete, or the answer's only call.
static bool add_text(struct choice *choice, const struct nibble_token *token)
{
    if (token->stop && !choice->stop.include)
        return true;
    struct strbuf piece = { 0 };
    size_t before = choice->draft.text.len;
    detokenizer_add(&choice->detokenizer, token->id, &piece);
    choice->stop_hit = stop_add(&choice->stop, strbuf_bytes(&piece), &choice->draft.text);
    strbuf_free(&piece);
    struct bytes text = { choice->draft.text.data + before, choice->draft.text.len - before };
    return watch_call(choice, text) && choice->stop_hit < 0;
}

static bool hear_token(void *context, const struct nibble_token *token)
{
    struct choice *choice = context;
    mail_add(&choice->draft, token, worker_now());
    choice->job->touched = true;
    if (token->stop)
        choice->stop_id = token->id;
    bool goes_on = add_text(choice, token);
    if (choice->matcher && !token->stop) {
        matcher_accept(choice->matcher, token->id);
        goes_on &= !matcher_done(choice->matcher);
    }
    return goes_on;
}

static void hear_end(void *context, enum nibble_finish reason, const struct nibble_usage *usage, const char *error)
{
    struct choice *choice = context;
    struct job *job = choice->job;
    if (choice->stop_hit < 0) {
        struct strbuf rest = { 0 };
        detokenizer_finish(&choice->detokenizer, &rest);
        choice->stop_hit = stop_add(&choice->stop, strbuf_bytes(&rest), &choice->draft.text);
        strbuf_free(&rest);
        if (choice->stop_hit < 0)
            stop_finish(&choice->stop, &choice->draft.text);
    }
    bool closed = reason == NIBBLE_FINISH_STOP && choice->matcher && matcher_forced(choice->matcher);
    choice->draft.finished = true;
    choice->draft.reason = closed ? NIBBLE_FINISH_LENGTH : reason; // max_tokens ended it, not the model
    choice->draft.stop_string = choice->stop_hit;
    choice->draft.stop_id = choice->stop_id;
    choice->draft.usage = *usage;
    choice->name = 0;
    if (reason == NIBBLE_FINISH_FAILED)
        api_fail(&job->error, 500, NULL, "%s", error);
    job->running--;
    job->touched = true;
}

static void open_choice(struct choice *choice)
{
    const struct job *job = choice->job;
    const struct fields *fields = &job->fields;
    // An answer continues a text: its first token keeps the space that begins it.
    choice->detokenizer = (struct detokenizer){ .tokenizer = job->api->tokenizer,
                                                .skip_special = fields->skip_special, .started = true };
    choice->stop = (struct stop){ .strings = fields->stops, .count = fields->stop_count,
                                  .include = fields->include_stop };
    if (job->grammar) {
        choice->matcher = matcher_open(job->grammar, api_vocabulary(job->api));
    } else if (job->tools && job->one_call) {
        choice->call_watch = tool_reader_open(job->tool_form, job->tools, &(struct tool_sink){ 0 });
        tool_reader_end_with_call(choice->call_watch);
    }
}

// Pages of the prefix cache are found again under the same salt alone: that of the tenant and of the request.
static void add_salt(const struct job *job, struct strbuf *salt)
{
    if (job->tenant)
        strbuf_add(salt, (const char *)job->tenant, KEY_DIGEST_BYTES);
    strbuf_add(salt, job->fields.cache_salt.data, job->fields.cache_salt.len);
}

bool follow_start(struct choice *choice, uint64_t after, struct nibble_error *error)
{
    const struct fields *fields = &choice->job->fields;
    struct strbuf salt = { 0 };
    add_salt(choice->job, &salt);
    open_choice(choice);
    bool masked = choice->matcher, scored = fields->top_logprobs >= 0;
    struct nibble_request request = {
        .prompt = choice->prompt->ids, .prompt_count = choice->prompt->count,
        .max_tokens = (int)fields->max_tokens, .min_tokens = (int)fields->min_tokens,
        .sampling = fields->sampling,
        .stop_ids = fields->stop_ids, .stop_count = (size_t)fields->stop_id_count,
        .bias = fields->bias, .bias_count = (size_t)fields->bias_count,
        .top_logprobs = (int)fields->top_logprobs, .score_prompt = fields->echo && scored,
        .priority = (int)fields->priority,
        .cache_salt = salt.data, .cache_salt_len = salt.len,
        .after = after,
        .listener = { .context = choice,
                      .restrict_tokens = masked ? restrict_tokens : NULL,
                      .choose_token = masked && fields->close_at_max_tokens ? choose_token : NULL,
                      .prompt_token = hear_prompt_token, .token = hear_token, .finished = hear_end },
    };
    request.sampling.choice = choice->number;
    choice->name = nibble_scheduler_add(choice->job->worker->scheduler, &request, error);
    strbuf_free(&salt);
    return choice->name;
}
