// SPDX-License-Identifier: Apache-2.0
// server/answer_chat.c: response bodies of /v1/chat/completions: messages, deltas, tool calls and logprobs.
#include <stdio.h>
#include <sys/random.h>

#include "base/memory.h"
#include "server/answer.h"
#include "server/json_writer.h"

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

void answer_chat_take(struct choice *choice)
{
    struct bytes text = strbuf_bytes(&choice->delivered.text);
    open_tools(choice);
    if (!choice->tools)
        add_content(choice, text);
    else
        tool_reader_add(choice->tools, text);
    if (choice->tools && choice->delivered.finished)
        tool_reader_finish(choice->tools);
}

// ---- chunks -------------------------------------------------------------------------------------------------------

// Writes the delta of a call: its name at first, then its arguments as they come.
static void write_call_delta(struct tool_call *call, int index, struct strbuf *out)
{
    struct bytes fresh = { call->arguments.data + call->sent, call->arguments.len - call->sent };
    strbuf_add_format(out, "{\"index\":%d,\"function\":{\"arguments\":", index);
    json_write_text(out, fresh);
    if (call->named) {
        strbuf_add_text(out, "}}");
    } else {
        strbuf_add_text(out, ",\"name\":");
        json_write_text(out, strbuf_bytes(&call->name));
        strbuf_add_format(out, "},\"id\":\"%s\",\"type\":\"function\"}", call->id);
    }
    call->named = true;
    call->sent = call->arguments.len;
}

bool answer_chat_delta(struct choice *choice, struct strbuf *out)
{
    bool content = choice->content.len;
    int calls = 0;
    strbuf_add_byte(out, '{');
    if (content) {
        strbuf_add_text(out, "\"content\":");
        json_write_text(out, strbuf_bytes(&choice->content));
    }
    choice->content.len = 0;
    for (int i = 0; i < choice->call_count; i++) {
        struct tool_call *call = &choice->calls[i];
        if (call->named && call->arguments.len == call->sent)
            continue;
        strbuf_add_text(out, calls++ ? "," : content ? ",\"tool_calls\":[" : "\"tool_calls\":[");
        write_call_delta(call, i, out);
    }
    strbuf_add_text(out, calls ? "]}" : "}");
    return content || calls;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

bool answer_chat_is_silent(const struct choice *choice) { return choice->call_count && !choice->content.len; }

void answer_chat_write_calls(const struct choice *choice, struct strbuf *out)
{
    for (int i = 0; i < choice->call_count; i++) {
        const struct tool_call *call = &choice->calls[i];
        strbuf_add_text(out, i ? "," : ",\"tool_calls\":[");
        strbuf_add_format(out, "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
        json_write_text(out, strbuf_bytes(&call->name));
        strbuf_add_text(out, ",\"arguments\":");
        json_write_text(out, strbuf_bytes(&call->arguments));
        strbuf_add_text(out, "}}");
    }
    strbuf_add_text(out, choice->call_count ? "]" : "");
}

// ---- logprobs -----------------------------------------------------------------------------------------------------

// Writes an entry without its closing brace.
static void write_logprob(const struct job *job, int32_t id, float logprob, struct strbuf *out)
{
    struct strbuf token = { 0 }, name = { 0 };
    answer_token_bytes(job->api, id, &token);
    answer_token_name(job, id, &name);
    strbuf_add_text(out, "{\"token\":");
    json_write_text(out, strbuf_bytes(&name));
    strbuf_add_text(out, ",\"logprob\":");
    json_write_logprob(out, logprob);
    strbuf_add_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < token.len; i++)
        answer_write_id((unsigned char)token.data[i], i == 0, out);
    strbuf_add_byte(out, ']');
    strbuf_free(&token);
    strbuf_free(&name);
}

static void write_entry(struct choice *choice, int index, struct strbuf *out)
{
    const struct output *output = &choice->answer;
    const struct answer_token *token = &output->tokens[index];
    write_logprob(choice->job, token->id, token->logprob, out);
    strbuf_add_text(out, ",\"top_logprobs\":[");
    for (int i = 0; i < token->top_count; i++) {
        const struct nibble_candidate *likely = &output->tops[token->top_first + i];
        strbuf_add_text(out, i ? "," : "");
        write_logprob(choice->job, likely->id, likely->logprob, out);
        strbuf_add_byte(out, '}');
    }
    strbuf_add_text(out, "]}");
}

const struct answer_list answer_chat_lists[1] = { { "{\"content\":[", write_entry } };
