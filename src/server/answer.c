// SPDX-License-Identifier: Apache-2.0
#include "server/answer.h"

void answer_token_bytes(const struct api *api, int32_t id, struct strbuf *out)
{
    struct detokenizer detokenizer = { .tokenizer = api->tokenizer, .started = true };
    detokenizer_add(&detokenizer, id, out);
    detokenizer_finish(&detokenizer, out);
}

void answer_token_name(const struct job *job, int32_t id, struct strbuf *out)
{
    if (job->fields.tokens_as_ids)
        strbuf_add_format(out, "token_id:%d", id);
    else
        answer_token_bytes(job->api, id, out);
}

// ---- what all answers have ----------------------------------------------------------------------------------------

static const struct {
    const char *whole, *chunk;
} objects[] = {
    [JOB_CHAT] = { "chat.completion", "chat.completion.chunk" },
    [JOB_COMPLETION] = { "text_completion", "text_completion" },
};

static json_t *envelope(const struct job *job, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", job->id, "object", object, "created",
                     (json_int_t)job->created, "model", job->api->names[0], "system_fingerprint",
                     job->api->fingerprint, "choices", choices);
}

// Tokens of all prompts and answers so far.
static json_t *usage_of(const struct job *job)
{
    json_int_t prompt = 0, cached = 0, answer = 0;
    for (int i = 0; i < job->choice_count; i++) {
        const struct choice *choice = &job->choices[i];
        bool first = choice->number == 0; // the n of a prompt share it
        prompt += first ? (json_int_t)choice->prompt->count : 0;
        cached += first ? choice->answer.usage.cached_tokens : 0;
        answer += choice->answer.token_count - choice->answer.prompt_tokens;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", answer, "total_tokens",
                     prompt + answer, "prompt_tokens_details", "cached_tokens", cached);
}

static const char *finish_word(const struct choice *choice)
{
    switch (choice->answer.reason) {
    case NIBBLE_FINISH_STOP:
        return choice->call_count ? "tool_calls" : "stop";
    case NIBBLE_FINISH_LENGTH:
        return "length";
    case NIBBLE_FINISH_CANCELLED:
        return "abort";
    default:
        return "error";
    }
}

// The stop string or token that ended the answer; null for the model's own end.
static json_t *stop_reason(const struct choice *choice)
{
    const struct mail *answer = &choice->answer;
    const struct api *api = choice->job->api;
    if (answer->stop_string >= 0)
        return api_text(choice->job->fields.stops[answer->stop_string]);
    bool own = answer->stop_id < 0;
    for (int i = 0; i < api->end_count; i++)
        own |= api->end_ids[i] == answer->stop_id;
    return own ? json_null() : json_integer(answer->stop_id);
}

static void set_finish(json_t *entry, const struct choice *choice, bool finished)
{
    json_object_set_new(entry, "finish_reason", finished ? json_string(finish_word(choice)) : json_null());
    if (finished)
        json_object_set_new(entry, "stop_reason", stop_reason(choice));
}

static json_t *token_ids(const struct mail *mail)
{
    json_t *ids = json_array();
    for (int i = mail->prompt_tokens; i < mail->token_count; i++)
        json_array_append_new(ids, json_integer(mail->tokens[i].id));
    return ids;
}

static json_t *prompt_ids(const struct prompt *prompt)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < prompt->count; i++)
        json_array_append_new(ids, json_integer(prompt->ids[i]));
    return ids;
}

static json_t *logprobs_of(struct choice *choice, const struct mail *mail)
{
    const struct job *job = choice->job;
    if (job->fields.top_logprobs < 0)
        return json_null();
    return job->kind == JOB_CHAT ? answer_chat_logprobs(job, mail)
                                 : answer_completion_logprobs(job, mail, &choice->text_offset);
}

// The news becomes content (a chat's calls are taken out of it).
static void take_news(struct choice *choice)
{
    if (choice->job->kind == JOB_CHAT) {
        answer_chat_add(choice);
        return;
    }
    if (choice->job->fields.echo && !choice->begun)
        answer_completion_echo(choice, &choice->content);
    choice->begun = true;
    strbuf_add(&choice->content, choice->news.text.data, choice->news.text.len);
}

// ---- streams ------------------------------------------------------------------------------------------------------

static void add_event(const json_t *value, struct strbuf *out)
{
    strbuf_add_text(out, "data: ");
    api_dump(value, out);
    strbuf_add_text(out, "\n\n");
}

static void add_chunk(const struct job *job, json_t *choice, struct strbuf *out)
{
    json_t *choices = json_array();
    json_array_append_new(choices, choice);
    json_t *chunk = envelope(job, objects[job->kind].chunk, choices);
    if (job->fields.continuous_usage)
        json_object_set_new(chunk, "usage", usage_of(job));
    else if (job->fields.include_usage)
        json_object_set_new(chunk, "usage", json_null());
    add_event(chunk, out);
    json_decref(chunk);
}

static json_t *chunk_entry(struct choice *choice, json_t *content, json_t *logprobs, bool finished)
{
    bool chat = choice->job->kind == JOB_CHAT;
    json_t *entry = json_pack("{s:i, s:o, s:o}", "index", choice->index, chat ? "delta" : "text", content, "logprobs",
                              logprobs);
    set_finish(entry, choice, finished);
    return entry;
}

// The new content of a choice, NULL when there is none to tell.
static json_t *fresh_content(struct choice *choice)
{
    const struct fields *fields = &choice->job->fields;
    if (choice->job->kind == JOB_CHAT)
        return answer_chat_chunk(choice);
    bool tokens = choice->news.token_count && (fields->top_logprobs >= 0 || fields->return_token_ids);
    json_t *text = choice->content.len || tokens ? api_text(strbuf_bytes(&choice->content)) : NULL;
    choice->content.len = 0;
    return text;
}

static void stream_choice(struct choice *choice, struct strbuf *out)
{
    const struct job *job = choice->job;
    bool chat = job->kind == JOB_CHAT;
    if (chat && !choice->begun)
        add_chunk(job, chunk_entry(choice, answer_chat_opening(choice), json_null(), false), out);
    take_news(choice);
    json_t *content = fresh_content(choice);
    bool finished = choice->news.finished;
    json_t *logprobs = content ? logprobs_of(choice, &choice->news) : NULL;
    json_t *ids = content && job->fields.return_token_ids ? token_ids(&choice->news) : NULL;
    mail_move(&choice->news, &choice->answer);
    if (content) {
        json_t *entry = chunk_entry(choice, content, logprobs, false);
        if (ids)
            json_object_set_new(entry, "token_ids", ids);
        add_chunk(job, entry, out);
    }
    if (finished && choice->answer.reason != NIBBLE_FINISH_FAILED)
        add_chunk(job, chunk_entry(choice, chat ? json_object() : json_string(""), json_null(), true), out);
}

void answer_stream(struct job *job, struct strbuf *out)
{
    bool all = true;
    for (int i = 0; i < job->choice_count; i++) {
        struct choice *choice = &job->choices[i];
        bool fresh = choice->news.token_count || choice->news.finished || !choice->begun;
        if (fresh)
            stream_choice(choice, out);
        all &= choice->answer.finished;
    }
    if (!all)
        return;
    if (job->error.status) {
        answer_stream_error(&job->error, out);
        return;
    }
    if (job->fields.include_usage || job->fields.continuous_usage) {
        json_t *chunk = envelope(job, objects[job->kind].chunk, json_array());
        json_object_set_new(chunk, "usage", usage_of(job));
        add_event(chunk, out);
        json_decref(chunk);
    }
    strbuf_add_text(out, "data: [DONE]\n\n");
}

void answer_stream_error(const struct api_error *err, struct strbuf *out)
{
    json_t *error = api_error_json(err);
    add_event(error, out);
    json_decref(error);
    strbuf_add_text(out, "data: [DONE]\n\n");
}

// ---- whole answers ------------------------------------------------------------------------------------------------

void answer_gather(struct job *job)
{
    for (int i = 0; i < job->choice_count; i++) {
        take_news(&job->choices[i]);
        mail_move(&job->choices[i].news, &job->choices[i].answer);
    }
}

void answer_whole(struct job *job, struct strbuf *out)
{
    json_t *choices = json_array();
    bool chat = job->kind == JOB_CHAT;
    for (int i = 0; i < job->choice_count; i++) {
        struct choice *choice = &job->choices[i];
        json_t *content = chat ? answer_chat_message(choice) : api_text(strbuf_bytes(&choice->content));
        json_t *entry = json_pack("{s:i, s:o, s:o}", "index", choice->index, chat ? "message" : "text", content,
                                  "logprobs", logprobs_of(choice, &choice->answer));
        set_finish(entry, choice, true);
        if (job->fields.return_token_ids) {
            json_object_set_new(entry, "token_ids", token_ids(&choice->answer));
            json_object_set_new(entry, "prompt_token_ids", prompt_ids(choice->prompt));
        }
        json_array_append_new(choices, entry);
    }
    json_t *answer = envelope(job, objects[job->kind].whole, choices);
    json_object_set_new(answer, "usage", usage_of(job));
    api_dump(answer, out);
    json_decref(answer);
}
