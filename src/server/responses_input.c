// SPDX-License-Identifier: Apache-2.0
// server/responses_input.c: reads instructions and input of /v1/responses: a text, or items, behind those of the
// response that it continues, as the messages of a chat.
#include "server/responses.h"

#include <stdio.h>

#include "format/json.h"
#include "server/translate.h"

// The messages so far.
struct conversation {
    struct job *job;
    json_t *messages;
    struct strbuf reasoning; // of the next message or call of the assistant's
    size_t index;            // of the item, for errors
};

static bool fail_item(const struct conversation *talk, const char *code, const char *what)
{
    return api_fail_code(&talk->job->error, 400, "input", code, "\"input\"[%zu] %s", talk->index, what);
}

// ---- contents -----------------------------------------------------------------------------------------------------

static const struct {
    const char *type, *key; // key: of its text; NULL: it has none
} part_types[] = {
    { "input_text", "text" },   { "output_text", "text" },       { "text", "text" },      { "refusal", "refusal" },
    { "summary_text", "text" }, { "reasoning_text", "text" },    { "input_image", NULL }, { "input_file", NULL },
    { "input_audio", NULL },    { "computer_screenshot", NULL },
};

// The text of a content part, borrowed. NULL: refused.
static json_t *part_text(const struct conversation *talk, const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; type && i < sizeof part_types / sizeof *part_types; i++) {
        const char *key = part_types[i].key;
        if (strcmp(type, part_types[i].type))
            continue;
        json_t *text = key ? json_object_get(part, key) : NULL;
        if (json_is_string(text))
            return text;
        api_fail_code(&talk->job->error, 400, "input", key ? "invalid_value" : "unsupported_value",
                      "\"input\"[%zu] has a content part of the type \"%.60s\"%s", talk->index, type,
                      key ? " without a text" : ", and this server reads and writes text alone");
        return NULL;
    }
    fail_item(talk, "invalid_value", "has a content part that is not of the type input_text or output_text");
    return NULL;
}

// Content as a chat has it: a text, or a list of them (new reference). NULL: refused.
static json_t *chat_content(const struct conversation *talk, json_t *content)
{
    size_t index;
    json_t *part;
    if (json_is_string(content))
        return json_incref(content);
    if (!json_is_array(content))
        return fail_item(talk, "invalid_value", "has a content that is neither a text nor a list of parts"), NULL;
    json_t *list = json_array();
    json_array_foreach (content, index, part) {
        json_t *text = part_text(talk, part);
        if (!text) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, translate_part(text));
    }
    return list;
}

static void add_content(const json_t *content, struct strbuf *out)
{
    const json_t *part;
    size_t index;
    if (json_is_string(content))
        strbuf_add(out, json_string_value(content), json_string_length(content));
    json_array_foreach (content, index, part) {
        struct bytes text = json_bytes(json_object_get(part, "text"));
        strbuf_add(out, "\n", index > 0);
        strbuf_add(out, text.data, text.len);
    }
}

// ---- messages -----------------------------------------------------------------------------------------------------

// Many templates take one system message, at the beginning: instructions and what stands first are one.
static bool join_system(struct conversation *talk, const json_t *content)
{
    json_t *first = translate_last(talk->messages, "system");
    struct strbuf text = { 0 };
    if (json_array_size(talk->messages) != 1 || !first)
        return false;
    add_content(json_object_get(first, "content"), &text);
    strbuf_add_text(&text, "\n\n");
    add_content(content, &text);
    return json_object_set_new(first, "content", translate_text(&text)) == 0;
}

static void give_reasoning(struct conversation *talk, json_t *message)
{
    struct strbuf *reasoning = &talk->reasoning, all = { 0 };
    if (reasoning->len) {
        struct bytes had = json_bytes(json_object_get(message, "reasoning_content"));
        strbuf_add(&all, had.data, had.len);
        strbuf_add(&all, "\n", had.len > 0);
        strbuf_add(&all, reasoning->data, reasoning->len);
        json_object_set_new(message, "reasoning_content", translate_text(&all));
    }
    reasoning->len = 0;
}

static bool add_message(struct conversation *talk, json_t *item)
{
    static const char *const roles[] = { "user", "assistant", "system", "developer", NULL };
    enum { USER, ASSISTANT, SYSTEM };
    int role = field_word(item, "role", roles);
    if (role < 0)
        return fail_item(talk, "invalid_value", "is a message whose role is not user, assistant, system or developer");
    json_t *content = chat_content(talk, json_object_get(item, "content"));
    if (!content)
        return false;
    if (role >= SYSTEM && join_system(talk, content)) {
        json_decref(content);
        return true;
    }
    json_t *message = json_pack("{s:s, s:o}", "role", roles[role < SYSTEM ? role : SYSTEM], "content", content);
    if (role == ASSISTANT)
        give_reasoning(talk, message);
    talk->reasoning.len = 0;
    json_array_append_new(talk->messages, message);
    return true;
}

// Calls belong to the message of the assistant's that they come behind.
static bool add_call(struct conversation *talk, json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *arguments = json_object_get(item, "arguments"), *message = translate_last(talk->messages, "assistant");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return fail_item(talk, "invalid_value", "is a function_call without texts call_id, name and arguments");
    if (!message) {
        message = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
        json_array_append_new(talk->messages, message);
    }
    give_reasoning(talk, message);
    translate_call(message, id, name, arguments);
    return true;
}

static bool add_call_output(struct conversation *talk, json_t *item)
{
    json_t *id = json_object_get(item, "call_id");
    if (!json_is_string(id))
        return fail_item(talk, "invalid_value", "is a function_call_output without a call_id");
    json_t *content = chat_content(talk, json_object_get(item, "output"));
    if (!content)
        return false;
    talk->reasoning.len = 0;
    translate_result(talk->messages, id, content, NULL);
    return true;
}

static bool add_reasoning(struct conversation *talk, json_t *item)
{
    json_t *content = json_object_get(item, "content"), *summary = field_of(item, "summary");
    if (field_of(item, "encrypted_content"))
        return api_fail_code(&talk->job->error, 400, "input", "unsupported_parameter",
                             "\"input\"[%zu].encrypted_content is not supported: this server encrypts no reasoning and "
                             "reads none; send the item without it",
                             talk->index);
    json_t *list = json_array_size(content) ? content : summary;
    if (!list)
        return true;
    json_t *texts = chat_content(talk, list);
    strbuf_add(&talk->reasoning, "\n", talk->reasoning.len > 0);
    add_content(texts, &talk->reasoning);
    json_decref(texts);
    return texts;
}

static const struct {
    const char *type;
    bool (*add)(struct conversation *talk, json_t *item);
} item_types[] = {
    { "message", add_message },
    { "function_call", add_call },
    { "function_call_output", add_call_output },
    { "reasoning", add_reasoning },
};

static const char *type_of(const json_t *item)
{
    const json_t *type = field_of(item, "type");
    bool bare = !type && json_is_object(item);
    return bare && json_object_get(item, "role")              ? "message"
        : bare && json_is_string(json_object_get(item, "id")) ? "item_reference"
                                                              : json_string_value(type);
}

static bool add_item(struct conversation *talk, json_t *item)
{
    const char *type = type_of(item);
    for (size_t i = 0; type && i < sizeof item_types / sizeof *item_types; i++)
        if (!strcmp(item_types[i].type, type))
            return item_types[i].add(talk, item);
    if (!type)
        return fail_item(talk, "invalid_value",
                         "is no item; write {\"role\": \"user\", \"content\": \"...\"}, or one with a \"type\"");
    return api_fail_code(&talk->job->error, 400, "input", "unsupported_value",
                         "\"input\"[%zu] is of the type \"%.60s\", which is not supported; items are message, "
                         "function_call, function_call_output, reasoning and item_reference",
                         talk->index, type);
}

// ---- the whole input ----------------------------------------------------------------------------------------------

static void add_content_parts(json_t *own, const json_t *content, bool answer)
{
    json_t *list = json_array();
    json_t *part = json_pack("{s:s, s:O}", "type", answer ? "output_text" : "input_text", "text", content);
    json_array_append_new(list, part);
    if (answer)
        json_object_set_new(part, "annotations", json_array());
    json_object_set_new(own, "content", list);
}

json_t *responses_item(const json_t *item, const char *digits, size_t index)
{
    static const struct {
        const char *type, *prefix;
    } prefixes[] = { { "message", "msg" }, { "function_call", "fc" }, { "function_call_output", "fco" } };
    json_t *own = json_copy((json_t *)item), *content = json_object_get(item, "content");
    const char *type = type_of(item), *prefix = "rs";
    char id[96];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strcmp(prefixes[i].type, type))
            prefix = prefixes[i].prefix;
    snprintf(id, sizeof id, "%s_%s_i%zu", prefix, digits, index);
    json_object_set_new(own, "type", json_string(type));
    if (!json_is_string(json_object_get(own, "id")))
        json_object_set_new(own, "id", json_string(id));
    if (!json_is_string(json_object_get(own, "status")))
        json_object_set_new(own, "status", json_string("completed"));
    if (!strcmp(type, "message") && json_is_string(content))
        add_content_parts(own, content, field_is(item, "role", "assistant"));
    return own;
}

// Adds an item, or the one that it refers to, and keeps it where the response is stored.
static bool add_own_item(struct conversation *talk, json_t *item, json_t *kept)
{
    const char *type = type_of(item);
    json_t *found = NULL;
    if (type && !strcmp(type, "item_reference")) {
        const json_t *id = json_object_get(item, "id");
        found = item = responses_find_item(talk->job, json_bytes(id));
        if (!found && !talk->job->error.status && !talk->job->leaves_lane)
            api_fail_code(&talk->job->error, 404, "input", "not_found", "Item with id '%.100s' not found.",
                          json_is_string(id) ? json_string_value(id) : "");
        if (!found)
            return false;
    }
    bool ok = add_item(talk, item);
    if (ok && kept) {
        const char *digits = strchr(talk->job->id, '_') ? strchr(talk->job->id, '_') + 1 : "";
        json_array_append_new(kept, responses_item(item, digits, talk->index));
    }
    json_decref(found);
    return ok;
}

static bool add_history(struct conversation *talk)
{
    const struct response_record *previous = talk->job->response->record->previous;
    json_t *items = previous ? responses_history(talk->job, previous) : json_array(), *item;
    size_t index;
    bool ok = items;
    json_array_foreach (items, index, item)
        ok = ok && add_item(talk, item);
    json_decref(items);
    talk->reasoning.len = 0;
    return ok;
}

static bool add_input(struct conversation *talk, json_t *input, json_t *kept)
{
    json_t *item;
    bool ok = true;
    if (json_is_string(input)) {
        item = json_pack("{s:s, s:O}", "role", "user", "content", input);
        ok = add_own_item(talk, item, kept);
        json_decref(item);
        return ok;
    }
    if (!json_is_array(input) || (!json_array_size(input) && !json_array_size(talk->messages)))
        return api_fail_code(&talk->job->error, 400, "input", !input ? "missing_required_parameter" : "invalid_value",
                             "\"input\" is a text, or a list of at least one item");
    json_array_foreach (input, talk->index, item)
        if (!add_own_item(talk, item, kept))
            return false;
    return ok;
}

bool responses_read_input(struct job *job, json_t *chat)
{
    struct conversation talk = { .job = job, .messages = json_array() };
    struct response *response = job->response;
    json_t *instructions = field_of(job->json, "instructions"), *kept = response->stored ? json_array() : NULL;
    json_object_set_new(chat, "messages", talk.messages);
    bool ok = !instructions || json_is_string(instructions)
        || api_fail(&job->error, 400, "instructions", "\"instructions\" is a text");
    if (ok && json_string_length(instructions))
        json_array_append_new(talk.messages, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    ok = ok && add_history(&talk) && add_input(&talk, field_of(job->json, "input"), kept);
    if (ok && kept)
        api_dump(kept, &response->record->input);
    json_decref(kept);
    json_decref(response->recalled);
    response->recalled = NULL;
    strbuf_free(&talk.reasoning);
    return ok;
}
