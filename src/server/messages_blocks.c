// SPDX-License-Identifier: Apache-2.0
// server/messages_blocks.c: Anthropic's messages, whose contents are lists of blocks, as the messages of a chat: text,
// thoughts and calls of a turn become one message, each tool result a message of its own.
#include "server/translate.h"

#include <stdarg.h>
#include <stdio.h>

#include "format/json.h"

// Turns of the same role in a row are one message: many templates want roles to alternate.
struct conversation {
    struct job *job;
    json_t *messages;
    json_t *tool_names;    // of earlier calls, by id; templates write the name beside a result
    const char *role;      // of the message that is read
    bool late_system;      // that message is the system's, and others stand before it
    size_t message, block; // where it is, for errors
};

enum role { ROLE_USER = 1, ROLE_ASSISTANT = 2, ROLE_SYSTEM = 4 };

static const struct {
    const char *name;
    enum role role;
} roles[] = { { "user", ROLE_USER }, { "assistant", ROLE_ASSISTANT }, { "system", ROLE_SYSTEM } };

// An error about a block. Always false.
__attribute__((format(printf, 2, 3))) static bool fail_block(struct conversation *conversation, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return api_fail(&conversation->job->error, 400, "messages", "messages[%zu].content[%zu]%s", conversation->message,
                    conversation->block, what);
}

// The message of this role that is still growing, at the end of the list.
static json_t *open_turn(struct conversation *conversation, const char *role)
{
    json_t *last = translate_last(conversation->messages, role);
    if (last)
        return last;
    json_t *turn = json_pack("{s:s, s:[]}", "role", role, "content");
    json_array_append_new(conversation->messages, turn);
    return turn;
}

static void add_text(json_t *turn, json_t *text)
{
    json_array_append_new(json_object_get(turn, "content"), translate_part(text));
}

// Thoughts of a turn are one text, a line each.
static json_t *join_thoughts(const json_t *thoughts)
{
    struct strbuf text = { 0 };
    for (size_t i = 0; i < json_array_size(thoughts); i++) {
        struct bytes thought = json_bytes(json_array_get(thoughts, i));
        strbuf_add(&text, "\n", i > 0);
        strbuf_add(&text, thought.data, thought.len);
    }
    return translate_text(&text);
}

// A list of one text becomes that text.
static void close_turn(json_t *turn)
{
    const json_t *content = json_object_get(turn, "content"), *thoughts = json_object_get(turn, "reasoning_content");
    if (json_array_size(content) == 1)
        json_object_set(turn, "content", json_object_get(json_array_get(content, 0), "text"));
    else if (json_is_array(content) && !json_array_size(content))
        json_object_set_new(turn, "content", json_string(""));
    if (thoughts)
        json_object_set_new(turn, "reasoning_content", join_thoughts(thoughts));
}

// ---- blocks -------------------------------------------------------------------------------------------------------

// A member of a block that has to be a string; NULL with an error.
static json_t *text_of(struct conversation *conversation, const json_t *block, const char *key)
{
    json_t *text = json_object_get(block, key);
    if (json_is_string(text))
        return text;
    return fail_block(conversation, ".%s is no string", key), NULL;
}

// Many templates refuse or drop a system message that is not the first one: its text goes into the user's turn.
static void add_turn_text(struct conversation *conversation, json_t *text)
{
    json_t *turn = open_turn(conversation, conversation->late_system ? "user" : conversation->role);
    if (!conversation->late_system) {
        add_text(turn, text);
        return;
    }
    struct strbuf wrapped = { 0 };
    strbuf_add_text(&wrapped, "<system>\n");
    strbuf_add(&wrapped, json_string_value(text), json_string_length(text));
    strbuf_add_text(&wrapped, "\n</system>");
    json_t *own = translate_text(&wrapped);
    add_text(turn, own);
    json_decref(own);
}

static bool add_text_block(struct conversation *conversation, const json_t *block)
{
    json_t *text = text_of(conversation, block, "text");
    if (text)
        add_turn_text(conversation, text);
    return text;
}

static bool add_thinking_block(struct conversation *conversation, const json_t *block)
{
    json_t *text = text_of(conversation, block, "thinking");
    if (!text || !json_string_length(text))
        return text;
    json_t *turn = open_turn(conversation, conversation->role), *thoughts = json_object_get(turn, "reasoning_content");
    if (!thoughts)
        json_object_set_new(turn, "reasoning_content", thoughts = json_array());
    json_array_append(thoughts, text);
    return true;
}

// Only the server that encrypted a thought can read it: it is left out.
static bool skip_redacted_block(struct conversation *conversation, const json_t *block)
{
    (void)conversation, (void)block;
    return true;
}

static bool add_call_block(struct conversation *conversation, const json_t *block)
{
    json_t *id = text_of(conversation, block, "id"), *name = id ? text_of(conversation, block, "name") : NULL;
    json_t *input = json_object_get(block, "input");
    if (!name)
        return false;
    if (!json_is_object(input))
        return fail_block(conversation, ".input is no object");
    translate_call(open_turn(conversation, conversation->role), id, name, input);
    json_object_setn(conversation->tool_names, json_string_value(id), json_string_length(id), name);
    return true;
}

static bool join_result(struct conversation *conversation, const json_t *content, struct strbuf *out)
{
    size_t index;
    const json_t *part;
    if (json_is_string(content))
        strbuf_add(out, json_string_value(content), json_string_length(content));
    else if (content && !json_is_null(content) && !json_is_array(content))
        return fail_block(conversation, ".content is neither a string nor a list of blocks");
    json_array_foreach (content, index, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (!field_is(part, "type", "text") || !json_is_string(text))
            return fail_block(conversation, ".content[%zu] is of type %.60s; results of tools are text here", index,
                              type ? type : "none");
        strbuf_add(out, "\n", index > 0);
        strbuf_add(out, json_string_value(text), json_string_length(text));
    }
    return true;
}

// Chat templates have no place for a failure, so the text says it.
static bool add_result_block(struct conversation *conversation, const json_t *block)
{
    json_t *id = text_of(conversation, block, "tool_use_id");
    struct strbuf result = { 0 };
    bool failed = json_is_true(json_object_get(block, "is_error"));
    strbuf_add_text(&result, failed ? "Error: " : "");
    if (!id || !join_result(conversation, json_object_get(block, "content"), &result)) {
        strbuf_free(&result);
        return false;
    }
    translate_result(conversation->messages, id, translate_text(&result),
                     json_object_getn(conversation->tool_names, json_string_value(id), json_string_length(id)));
    return true;
}

static const char *const text_keys[] = { "type", "text", "cache_control", "citations", NULL };
static const char *const thinking_keys[] = { "type", "thinking", "signature", "cache_control", NULL };
static const char *const redacted_keys[] = { "type", "data", "cache_control", NULL };
static const char *const call_keys[] = { "type", "id", "name", "input", "cache_control", "caller", NULL };
static const char *const result_keys[] = { "type", "tool_use_id", "content", "is_error", "cache_control", NULL };

static const struct block_kind {
    const char *type;
    int roles; // bits of enum role: messages that may have it
    const char *const *keys;
    bool (*add)(struct conversation *conversation, const json_t *block);
} block_kinds[] = {
    { "text", ROLE_USER | ROLE_ASSISTANT | ROLE_SYSTEM, text_keys, add_text_block },
    { "thinking", ROLE_ASSISTANT, thinking_keys, add_thinking_block },
    { "redacted_thinking", ROLE_ASSISTANT, redacted_keys, skip_redacted_block },
    { "tool_use", ROLE_ASSISTANT, call_keys, add_call_block },
    { "tool_result", ROLE_USER, result_keys, add_result_block },
};

// Returns why there is no block of this type.
static const char *refusal_of(const char *type)
{
    static const char *const media[] = { "image", "document", "search_result", "container_upload", NULL };
    for (size_t i = 0; media[i]; i++)
        if (!strcmp(media[i], type))
            return "this server reads text alone";
    bool hosted = strstr(type, "server_tool") || strstr(type, "_tool_result") || strstr(type, "mcp_");
    return hosted ? "it belongs to tools that run on Anthropic's servers" : "there is no such block here";
}

static bool add_block(struct conversation *conversation, enum role role, const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type)
        return fail_block(conversation, " has no type; write {\"type\": \"text\", \"text\": \"...\"}");
    for (size_t i = 0; i < sizeof block_kinds / sizeof *block_kinds; i++) {
        const struct block_kind *kind = &block_kinds[i];
        if (!field_is(block, "type", kind->type))
            continue;
        if (!(kind->roles & (int)role))
            return fail_block(conversation, " is of type %s, which no %s message has", kind->type, conversation->role);
        return fields_check_keys(block, "messages", kind->keys, &conversation->job->error)
            && kind->add(conversation, block);
    }
    return fail_block(conversation, " is of type %.60s: %s", type, refusal_of(type));
}

// ---- messages -----------------------------------------------------------------------------------------------------

static bool add_content(struct conversation *conversation, enum role role, json_t *content)
{
    size_t index;
    const json_t *block;
    if (json_is_string(content)) {
        add_turn_text(conversation, content);
        return true;
    }
    if (!json_is_array(content))
        return api_fail(&conversation->job->error, 400, "messages",
                        "messages[%zu].content is neither a string nor a list of blocks", conversation->message);
    json_array_foreach (content, index, block) {
        conversation->block = index;
        if (!add_block(conversation, role, block))
            return false;
    }
    return true;
}

static bool add_message(struct conversation *conversation, const json_t *message)
{
    struct api_error *err = &conversation->job->error;
    if (!fields_check_keys(message, "messages", WORDS("role", "content"), err))
        return false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!field_is(message, "role", roles[i].name))
            continue;
        conversation->role = roles[i].name;
        conversation->late_system = roles[i].role == ROLE_SYSTEM && json_array_size(conversation->messages)
            && !translate_last(conversation->messages, "system");
        return add_content(conversation, roles[i].role, json_object_get(message, "content"));
    }
    return api_fail(err, 400, "messages", "messages[%zu].role is none of user, assistant and system",
                    conversation->message);
}

// ---- the system prompt --------------------------------------------------------------------------------------------

// Claude Code begins its system prompt with a line of accounting that is another one in each request. It says nothing
// to a model and would keep the prefix cache from ever being hit. A new reference.
static json_t *without_accounting(json_t *text)
{
    struct bytes rest = json_bytes(text), line = bytes_of("x-anthropic-billing-header:");
    while (bytes_start_with(rest, line)) {
        const char *end = memchr(rest.data, '\n', rest.len);
        rest = bytes_from(rest, end ? (size_t)(end - rest.data) + 1 : rest.len);
    }
    return json_stringn(rest.data, rest.len);
}

static bool add_system_text(struct conversation *conversation, json_t *given)
{
    if (!json_is_string(given))
        return api_fail(&conversation->job->error, 400, "system", "\"system\" is a string, or a list of text blocks");
    json_t *text = without_accounting(given);
    if (json_string_length(text))
        add_text(open_turn(conversation, "system"), text);
    json_decref(text);
    return true;
}

static bool add_system(struct conversation *conversation, const json_t *system)
{
    size_t index;
    const json_t *block;
    if (!system || json_is_null(system))
        return true;
    if (!json_is_array(system))
        return add_system_text(conversation, (json_t *)system);
    json_array_foreach (system, index, block) {
        bool text = field_is(block, "type", "text");
        if (!fields_check_keys(block, "system", text_keys, &conversation->job->error)
            || !add_system_text(conversation, text ? json_object_get(block, "text") : NULL))
            return false;
    }
    return true;
}

// ---- all of it ----------------------------------------------------------------------------------------------------

json_t *messages_conversation(struct job *job, const json_t *system, const json_t *messages)
{
    struct conversation conversation = { .job = job, .messages = json_array(), .tool_names = json_object() };
    size_t index;
    const json_t *message;
    bool ok = add_system(&conversation, system)
        && (json_array_size(messages)
            || api_fail(&job->error, 400, "messages", "\"messages\" is a list of at least one message"));
    for (index = 0; ok && (message = json_array_get(messages, index)); index++) {
        conversation.message = index;
        ok = add_message(&conversation, message);
    }
    for (index = 0; index < json_array_size(conversation.messages); index++)
        close_turn(json_array_get(conversation.messages, index));
    json_decref(conversation.tool_names);
    if (ok)
        return conversation.messages;
    json_decref(conversation.messages);
    return NULL;
}
