// SPDX-License-Identifier: Apache-2.0
// server/answer_chat.c: response bodies of /v1/chat/completions: messages, deltas and tool calls.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"

// ---- chunks -------------------------------------------------------------------------------------------------------

const char *const answer_chat_reasoning_keys[2] = { "reasoning_content", "reasoning" };

// A thought that is sent when it is whole, and goes on.
static bool is_gathered(const struct choice *choice, int part)
{
    return choice->job->gathers_reasoning && choice->parts[part].kind == PART_REASONING
        && part == choice->part_count - 1 && !choice->answer.finished;
}

// Writes a member of the delta. False: nothing is new, and nothing is written.
static bool write_text_delta(struct choice *choice, enum part_kind kind, const char *key, bool first,
                             struct strbuf *out)
{
    bool any = false;
    for (int i = 0; i < choice->part_count; i++) {
        struct answer_part *part = &choice->parts[i];
        if (part->kind != kind || !part->text.len || is_gathered(choice, i))
            continue;
        if (!any)
            strbuf_add_format(out, "%s\"%s\":\"", first ? "" : ",", key);
        json_write_text_inside(out, strbuf_bytes(&part->text));
        any = true;
    }
    strbuf_add_text(out, any ? "\"" : "");
    return any;
}

static void drop_sent(struct choice *choice, enum part_kind kind)
{
    for (int i = 0; i < choice->part_count; i++)
        if (choice->parts[i].kind == kind && !is_gathered(choice, i))
            choice->parts[i].text.len = 0;
}

// Writes the delta of a call: its name at first, then its arguments as they come.
static void write_call_delta(struct answer_part *call, struct strbuf *out)
{
    json_write(out, "{\"index\":%d,\"function\":{\"arguments\":%b", call->call, strbuf_bytes(&call->text));
    if (call->begun)
        strbuf_add_text(out, "}}");
    else
        json_write(out, ",\"name\":%b},\"id\":\"%s\",\"type\":\"function\"}", strbuf_bytes(&call->name), call->id);
    call->begun = true;
    call->text.len = 0;
}

bool answer_chat_delta(struct choice *choice, struct strbuf *out)
{
    int calls = 0;
    strbuf_add_byte(out, '{');
    bool any = false;
    for (int i = 0; i < 2; i++)
        any |= write_text_delta(choice, PART_REASONING, answer_chat_reasoning_keys[i], !any, out);
    any |= write_text_delta(choice, PART_CONTENT, "content", !any, out);
    drop_sent(choice, PART_REASONING);
    drop_sent(choice, PART_CONTENT);
    for (int i = 0; i < choice->part_count; i++) {
        struct answer_part *call = &choice->parts[i];
        if (call->kind != PART_CALL || (call->begun && !call->text.len))
            continue;
        strbuf_add_text(out, calls++ ? "," : any ? ",\"tool_calls\":[" : "\"tool_calls\":[");
        write_call_delta(call, out);
    }
    strbuf_add_text(out, calls ? "]}" : "}");
    return any || calls;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

bool answer_chat_is_silent(struct choice *choice)
{
    return choice->call_count && !parts_join(choice, PART_CONTENT).len;
}

void answer_chat_write_calls(const struct choice *choice, struct strbuf *out)
{
    for (int i = 0; i < choice->part_count; i++) {
        const struct answer_part *call = &choice->parts[i];
        if (call->kind != PART_CALL)
            continue;
        json_write(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":%b,\"arguments\":%b}}",
                   call->call ? "," : ",\"tool_calls\":[", call->id, strbuf_bytes(&call->name),
                   strbuf_bytes(&call->text));
    }
    strbuf_add_text(out, choice->call_count ? "]" : "");
}
