// SPDX-License-Identifier: Apache-2.0
#include "text/message_shape.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "format/json.h"
#include "text/messages.h"

enum { NINE_BYTES = 9, RESULT_JSON_BYTES_MAX = 16 << 20 };

static json_t *calls_of(const json_t *message) { return json_object_get(message, "tool_calls"); }

static json_t *function_of(const json_t *call) { return json_object_get(call, "function"); }

// ---- ids and names ------------------------------------------------------------------------------------------------

static bool is_nine(struct bytes id)
{
    for (size_t i = 0; i < id.len; i++)
        if (!((id.data[i] >= '0' && id.data[i] <= '9') || (id.data[i] >= 'A' && id.data[i] <= 'Z')
              || (id.data[i] >= 'a' && id.data[i] <= 'z')))
            return false;
    return id.len == NINE_BYTES;
}

// An id of nine stays as it is; another one becomes its digest, so that it is the same in later requests.
static json_t *nine_of(struct bytes id)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint8_t digest[SHA256_BYTES];
    char nine[NINE_BYTES];
    if (is_nine(id))
        return json_stringn(id.data, id.len);
    sha256_of(id, digest);
    for (int i = 0; i < NINE_BYTES; i++)
        nine[i] = digits[digest[i] % (sizeof digits - 1)];
    return json_stringn(nine, NINE_BYTES);
}

// Calls of a conversation so far: the client's ids, what they are called now, and the names of their functions.
struct links {
    enum call_ids ids;
    json_t *by_id;         // the client's id -> [new id, name]
    const json_t *pending; // calls of the latest message that had some,
    size_t answered;       // and how many results without an id came since
    int count;             // of calls
};

static json_t *new_id(const struct links *links, const json_t *given, const json_t *name)
{
    char made[32];
    struct bytes id = json_bytes(given);
    snprintf(made, sizeof made, "call_%d", links->count);
    if (links->ids == IDS_NAMED)
        return json_sprintf("functions.%s:%d", json_string_value(name), links->count);
    if (links->ids == IDS_NINE)
        return nine_of(id.len ? id : bytes_of(made));
    return id.len ? json_incref((json_t *)given) : json_string(made);
}

static void link_calls(struct links *links, json_t *calls)
{
    size_t index;
    json_t *call;
    json_array_foreach (calls, index, call) {
        json_t *given = json_object_get(call, "id"), *name = json_object_get(function_of(call), "name");
        json_t *id = new_id(links, given, name);
        if (json_string_length(given))
            json_object_set_new(links->by_id, json_string_value(given), json_pack("[O, O]", id, name));
        json_object_set_new(call, "id", id);
        links->count++;
    }
    links->pending = calls;
    links->answered = 0;
}

// A result has the id and the name of the call that it answers; without an id, of the next one that has no result.
static void link_result(struct links *links, json_t *result)
{
    const char *given = json_string_value(json_object_get(result, "tool_call_id"));
    const json_t *known = given ? json_object_get(links->by_id, given) : NULL;
    const json_t *next = given ? NULL : json_array_get(links->pending, links->answered);
    json_t *id = known ? json_array_get(known, 0) : json_object_get(next, "id");
    json_t *name = known ? json_array_get(known, 1) : json_object_get(function_of(next), "name");
    links->answered += !given;
    if (id)
        json_object_set(result, "tool_call_id", id);
    else if (given && links->ids == IDS_NINE)
        json_object_set_new(result, "tool_call_id", nine_of(bytes_of(given)));
    if (name && !json_is_string(json_object_get(result, "name")))
        json_object_set(result, "name", name);
}

static void link_messages(enum call_ids ids, json_t *messages)
{
    struct links links = { .ids = ids, .by_id = json_object() };
    size_t index;
    json_t *message;
    json_array_foreach (messages, index, message) {
        if (calls_of(message))
            link_calls(&links, calls_of(message));
        else if (message_has_role(message, "tool"))
            link_result(&links, message);
    }
    json_decref(links.by_id);
}

// ---- calls and their results --------------------------------------------------------------------------------------

static bool answers(const json_t *result, const json_t *call)
{
    return json_equal(json_object_get(result, "tool_call_id"), json_object_get(call, "id"));
}

// The message with its call of this index alone; content and thought stand before the first.
static json_t *with_call(const json_t *message, size_t index)
{
    json_t *own = json_copy((json_t *)message);
    json_object_set_new(own, "tool_calls", json_pack("[O]", json_array_get(calls_of(message), index)));
    if (index) {
        json_object_set_new(own, "content", json_string(""));
        json_object_del(own, MESSAGE_THOUGHT);
    }
    return own;
}

// A message with several calls, and the results that follow it up to `end`, in the order of the calls: clients send
// them as they come, and many templates write no ids. `split`: each call is a message, its results behind it.
static void add_calls(json_t *out, const json_t *messages, size_t at, size_t end, bool split)
{
    const json_t *message = json_array_get(messages, at);
    size_t calls = json_array_size(calls_of(message));
    bool *taken = memory_new(end - at, sizeof *taken);
    if (!split)
        json_array_append(out, (json_t *)message);
    for (size_t call = 0; call < calls; call++) {
        if (split)
            json_array_append_new(out, with_call(message, call));
        for (size_t i = at + 1; i < end; i++) {
            json_t *result = json_array_get(messages, i);
            if (taken[i - at] || !answers(result, json_array_get(calls_of(message), call)))
                continue;
            json_array_append(out, result);
            taken[i - at] = true;
        }
    }
    for (size_t i = at + 1; i < end; i++)
        if (!taken[i - at])
            json_array_append(out, json_array_get(messages, i));
    free(taken);
}

static size_t end_of_results(const json_t *messages, size_t at)
{
    while (message_has_role(json_array_get(messages, at), "tool"))
        at++;
    return at;
}

enum { ORDERED_CALLS_MAX = 128 }; // each call of a message is compared with each result

static json_t *order_results(json_t *messages, bool split)
{
    json_t *out = json_array();
    for (size_t at = 0, end; at < json_array_size(messages); at = end) {
        json_t *message = json_array_get(messages, at);
        size_t calls = json_array_size(calls_of(message));
        bool several = calls > 1 && calls <= ORDERED_CALLS_MAX;
        end = several ? end_of_results(messages, at + 1) : at + 1;
        if (several)
            add_calls(out, messages, at, end, split);
        else
            json_array_append(out, message);
    }
    json_decref(messages);
    return out;
}

// Calls behind the content that would hide them.
static json_t *split_contents(json_t *messages)
{
    json_t *out = json_array(), *message;
    size_t index;
    json_array_foreach (messages, index, message) {
        if (!calls_of(message) || !message_text(message).len) {
            json_array_append(out, message);
            continue;
        }
        json_t *content = json_copy(message), *calls = json_copy(message);
        json_object_del(content, "tool_calls");
        json_object_set_new(calls, "content", json_string(""));
        json_object_del(calls, MESSAGE_THOUGHT);
        json_array_append_new(out, content);
        json_array_append_new(out, calls);
    }
    json_decref(messages);
    return out;
}

// ---- calls and results as text ------------------------------------------------------------------------------------

// The run of messages from `at` to `end` in words (text/tools.h).
static void add_in_words(json_t *out, const struct tool_form *form, const json_t *messages, size_t at, size_t end)
{
    json_t *run = json_array();
    for (; at < end; at++)
        json_array_append(run, json_array_get(messages, at));
    json_t *words = tools_as_text(form, run, NULL);
    json_array_extend(out, words);
    json_decref(words);
    json_decref(run);
}

static json_t *history_in_words(const struct message_shape *shape, const struct tool_form *form, json_t *messages)
{
    json_t *out = json_array();
    for (size_t at = 0; at < json_array_size(messages);) {
        json_t *message = json_array_get(messages, at);
        bool calls = calls_of(message) && !shape->writes_calls;
        bool result = message_has_role(message, "tool") && !shape->writes_results;
        size_t end = result ? end_of_results(messages, at) : at + 1;
        if (calls || result)
            add_in_words(out, form, messages, at, end);
        else
            json_array_append(out, message);
        at = end;
    }
    json_decref(messages);
    return out;
}

// ---- one message --------------------------------------------------------------------------------------------------

static void write_arguments(json_t *message)
{
    size_t index;
    json_t *call;
    json_array_foreach (calls_of(message), index, call) {
        json_t *arguments = json_object_get(function_of(call), "arguments");
        char *text = json_is_string(arguments) ? NULL : json_dumps(arguments, JSON_ENCODE_ANY);
        if (text)
            json_object_set_new(function_of(call), "arguments", json_string(text));
        free(text);
    }
}

// False for JSON that would take more memory than a result is worth: it is quoted like any other text.
static bool is_json(struct bytes text)
{
    json_t *value;
    struct error ignored;
    if (json_memory(text) > RESULT_JSON_BYTES_MAX || !json_read(text, &value, &ignored))
        return false;
    json_decref(value);
    return true;
}

static void quote_result(json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_string(content) || is_json(json_bytes(content)))
        return;
    char *text = json_dumps(content, JSON_ENCODE_ANY);
    json_object_set_new(message, "content", json_string(text ? text : "\"\""));
    free(text);
}

static void put_block(json_t *message, json_t *thought)
{
    json_t *content = json_object_get(message, "content");
    json_t *list = json_is_array(content) ? json_copy(content) : json_array();
    json_array_insert_new(list, 0, json_pack("{s:s, s:O}", "type", "thinking", "thinking", thought));
    if (json_string_length(content))
        json_array_append_new(list, json_pack("{s:s, s:O}", "type", "text", "text", content));
    json_object_set_new(message, "content", list);
}

// Thought and content as one thought.
static void join_thought(json_t *message, json_t *thought)
{
    struct bytes first = json_bytes(thought), second = message_text(message);
    struct strbuf text = { 0 };
    strbuf_add(&text, first.data, first.len);
    strbuf_add_text(&text, "\n\n");
    strbuf_add(&text, second.data, second.len);
    message_set_text(message, &text);
    json_object_set(message, MESSAGE_THOUGHT, json_object_get(message, "content"));
    json_object_set_new(message, "content", json_string(""));
}

static void put_thought(const struct message_shape *shape, json_t *message)
{
    json_t *thought = json_object_get(message, MESSAGE_THOUGHT);
    if (!thought)
        return;
    if (shape->thought_or_content && calls_of(message) && message_text(message).len)
        join_thought(message, thought);
    thought = json_incref(json_object_get(message, MESSAGE_THOUGHT));
    if (shape->thought_blocks)
        put_block(message, thought);
    if (shape->thought_blocks || (shape->thought_key && strcmp(shape->thought_key, MESSAGE_THOUGHT) != 0))
        json_object_del(message, MESSAGE_THOUGHT);
    if (shape->thought_key)
        json_object_set(message, shape->thought_key, thought);
    json_decref(thought);
}

static void shape_message(const struct message_shape *shape, json_t *message)
{
    if (shape->arguments_as_text)
        write_arguments(message);
    if (shape->results_as_json && message_has_role(message, "tool"))
        quote_result(message);
    put_thought(shape, message);
    json_t *content = json_object_get(message, "content");
    if (shape->no_content_is_null && calls_of(message) && json_is_string(content) && !json_string_length(content))
        json_object_set_new(message, "content", json_null());
}

// ---- system messages ----------------------------------------------------------------------------------------------

// A run of messages whose contents are texts: the system messages at the beginning, or later system messages and what
// the user says beside them.
struct words {
    size_t count, systems;
    const char *role; // that says them when they are one message
};

static struct words words_at(const json_t *messages, size_t at)
{
    bool head = at == 0 && message_has_role(json_array_get(messages, 0), "system");
    struct words words = { .role = head ? "system" : "user" };
    for (;; words.count++) {
        const json_t *message = json_array_get(messages, at + words.count);
        bool system = message_has_role(message, "system");
        if (!(system || (!head && message_has_role(message, "user"))) || !message_text(message).data)
            return words;
        words.systems += system;
    }
}

static json_t *joined(const json_t *messages, size_t at, const struct words *words)
{
    json_t *message = json_copy(json_array_get(messages, at));
    struct strbuf text = { 0 };
    for (size_t i = 0; i < words->count; i++) {
        struct bytes part = message_text(json_array_get(messages, at + i));
        strbuf_add(&text, "\n\n", text.len && part.len ? 2 : 0);
        strbuf_add(&text, part.data, part.len);
    }
    json_object_set_new(message, "role", json_string(words->role));
    message_set_text(message, &text);
    return message;
}

// System messages at the beginning become one; a later one is said by the user.
static json_t *gather_system(json_t *messages)
{
    json_t *out = json_array();
    for (size_t at = 0; at < json_array_size(messages);) {
        struct words words = words_at(messages, at);
        size_t count = words.count ? words.count : 1;
        if (words.systems)
            json_array_append_new(out, joined(messages, at, &words));
        for (size_t i = 0; i < count && !words.systems; i++)
            json_array_append(out, json_array_get(messages, at + i));
        at += count;
    }
    json_decref(messages);
    return out;
}

// ---- all of it ----------------------------------------------------------------------------------------------------

json_t *message_shape_apply(const struct message_shape *shape, const struct tool_form *form, json_t *messages)
{
    size_t index;
    json_t *message;
    link_messages(shape->ids, messages);
    json_incref(messages);
    messages = order_results(messages, shape->one_call && shape->writes_calls);
    if (shape->calls_or_content)
        messages = split_contents(messages);
    if (!shape->writes_calls || !shape->writes_results)
        messages = history_in_words(shape, form, messages);
    if (shape->one_system)
        messages = gather_system(messages);
    json_array_foreach (messages, index, message)
        shape_message(shape, message);
    if (shape->needs_lists)
        messages_as_lists(messages);
    return messages;
}
