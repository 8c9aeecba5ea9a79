// SPDX-License-Identifier: Apache-2.0
// server/answer_chat.c: messages, deltas, tool calls and logprobs of /v1/chat/completions.
#include <stdio.h>
#include <sys/random.h>

#include "base/memory.h"
#include "server/answer.h"

// ---- what the tool reader finds -----------------------------------------------------------------------------------

static void add_content(void *context, struct bytes text)
{
    struct choice *choice = context;
    strbuf_add(&choice->content, text.data, text.len);
}

static void add_call(void *context, int index, struct bytes name)
{
    struct choice *choice = context;
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0)
        random = (uint64_t)index;
    choice->calls = memory_grow(choice->calls, (size_t)index + 1, sizeof *choice->calls);
    choice->calls[index] = (struct tool_call){ 0 };
    snprintf(choice->calls[index].id, sizeof choice->calls[index].id, "call_%016llx", (unsigned long long)random);
    strbuf_add(&choice->calls[index].name, name.data, name.len);
    choice->call_count = index + 1;
}

static void add_arguments(void *context, int index, struct bytes fragment)
{
    struct choice *choice = context;
    strbuf_add(&choice->calls[index].arguments, fragment.data, fragment.len);
}

static void open_tools(struct choice *choice)
{
    const struct job *job = choice->job;
    struct tool_sink sink = { .context = choice, .content = add_content, .call = add_call, .arguments = add_arguments };
    if (!job->tools || choice->tools)
        return;
    choice->tools = tool_reader_open(job->tool_form, job->tools, &sink);
    if (job->one_call)
        tool_reader_end_with_call(choice->tools);
}

void answer_chat_add(struct choice *choice)
{
    struct bytes text = strbuf_bytes(&choice->news.text);
    open_tools(choice);
    if (!choice->tools)
        add_content(choice, text);
    else
        tool_reader_add(choice->tools, text);
    if (choice->tools && choice->news.finished)
        tool_reader_finish(choice->tools);
}

// ---- chunks -------------------------------------------------------------------------------------------------------

json_t *answer_chat_opening(struct choice *choice)
{
    choice->begun = true;
    return json_pack("{s:s, s:s}", "role", "assistant", "content", "");
}

// What is new of a call: its name at first, then its arguments as they come.
static json_t *call_delta(struct tool_call *call, int index)
{
    struct bytes fresh = { call->arguments.data + call->sent, call->arguments.len - call->sent };
    if (call->named && !fresh.len)
        return NULL;
    json_t *function = json_pack("{s:o}", "arguments", api_text(fresh));
    json_t *delta = json_pack("{s:i, s:o}", "index", index, "function", function);
    if (!call->named) {
        json_object_set_new(function, "name", api_text(strbuf_bytes(&call->name)));
        json_object_set_new(delta, "id", json_string(call->id));
        json_object_set_new(delta, "type", json_string("function"));
    }
    call->named = true;
    call->sent = call->arguments.len;
    return delta;
}

json_t *answer_chat_chunk(struct choice *choice)
{
    json_t *delta = json_object(), *calls = json_array();
    if (choice->content.len)
        json_object_set_new(delta, "content", api_text(strbuf_bytes(&choice->content)));
    choice->content.len = 0;
    for (int i = 0; i < choice->call_count; i++) {
        json_t *call = call_delta(&choice->calls[i], i);
        if (call)
            json_array_append_new(calls, call);
    }
    if (json_array_size(calls))
        json_object_set(delta, "tool_calls", calls);
    json_decref(calls);
    bool tokens = choice->news.token_count
        && (choice->job->fields.top_logprobs >= 0 || choice->job->fields.return_token_ids);
    if (json_object_size(delta) || tokens)
        return delta;
    json_decref(delta);
    return NULL;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

json_t *answer_chat_message(const struct choice *choice)
{
    bool silent = choice->call_count && !choice->content.len;
    json_t *message = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                                silent ? json_null() : api_text(strbuf_bytes(&choice->content)), "refusal");
    json_t *calls = choice->call_count ? json_array() : NULL;
    for (int i = 0; i < choice->call_count; i++) {
        const struct tool_call *call = &choice->calls[i];
        json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", call->id, "type", "function",
                                               "function", "name", api_text(strbuf_bytes(&call->name)), "arguments",
                                               api_text(strbuf_bytes(&call->arguments))));
    }
    if (calls)
        json_object_set_new(message, "tool_calls", calls);
    return message;
}

static json_t *logprob_entry(const struct job *job, int32_t id, float logprob)
{
    struct strbuf token = { 0 }, name = { 0 };
    json_t *bytes = json_array();
    answer_token_bytes(job->api, id, &token);
    answer_token_name(job, id, &name);
    for (size_t i = 0; i < token.len; i++)
        json_array_append_new(bytes, json_integer((unsigned char)token.data[i]));
    json_t *entry = json_pack("{s:o, s:o, s:o}", "token", api_text(strbuf_bytes(&name)), "logprob",
                              api_logprob(logprob), "bytes", bytes);
    strbuf_free(&token);
    strbuf_free(&name);
    return entry;
}

json_t *answer_chat_logprobs(const struct job *job, const struct mail *mail)
{
    json_t *content = json_array();
    for (int i = 0; i < mail->token_count; i++) {
        const struct answer_token *token = &mail->tokens[i];
        if (token->stop)
            continue; // it ends the text and is no part of it
        json_t *entry = logprob_entry(job, token->id, token->logprob), *top = json_array();
        for (int j = 0; j < token->top_count; j++) {
            const struct nibble_candidate *likely = &mail->tops[token->top_first + j];
            json_array_append_new(top, logprob_entry(job, likely->id, likely->logprob));
        }
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o}", "content", content);
}
