// SPDX-License-Identifier: Apache-2.0
// OpenAI chat messages to the shape that chat templates expect.
#include "text/messages.h"

#include "format/json.h"

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && bytes_equal(json_bytes(value), bytes_of(text));
}

// ---- one message --------------------------------------------------------------------------------------------------

bool message_has_role(const json_t *message, const char *role)
{
    return is_text(json_object_get(message, "role"), role);
}

struct bytes message_text(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    return json_bytes(content);
}

void message_set_text(json_t *message, struct strbuf *text)
{
    json_object_set_new(message, "content", json_stringn(strbuf_text(text), text->len));
    strbuf_free(text);
}

// ---- contents -----------------------------------------------------------------------------------------------------

// Parts that are text, by their type, and the key that has it.
static const struct {
    const char *type, *key;
} text_parts[] = {
    { "text", "text" },
    { "input_text", "text" },
    { "output_text", "text" },
    { "refusal", "refusal" },
};

// The text of one part, borrowed; a bare string is one as well. NULL with a sentence.
static const json_t *part_text(const json_t *part, size_t message, size_t index, struct error *err)
{
    if (json_is_string(part))
        return part;
    const json_t *type = json_object_get(part, "type");
    if (!json_is_string(type))
        return fail(err, "messages[%zu].content[%zu] has no type; write {\"type\": \"text\", \"text\": \"...\"}",
                    message, index),
               NULL;
    for (size_t i = 0; i < sizeof text_parts / sizeof *text_parts; i++) {
        if (!is_text(type, text_parts[i].type))
            continue;
        const json_t *text = json_object_get(part, text_parts[i].key);
        if (!json_is_string(text))
            fail(err, "messages[%zu].content[%zu].%s is no string", message, index, text_parts[i].key);
        return json_is_string(text) ? text : NULL;
    }
    return fail(err, "messages[%zu].content[%zu] is of type %s; this model reads text only", message, index,
                json_string_value(type)),
           NULL;
}

static json_t *text_part(const json_t *text) { return json_pack("{s:s, s:O}", "type", "text", "text", text); }

static json_t *parts_as_list(const json_t *parts, size_t message, struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = part_text(json_array_get(parts, i), message, i, err);
        if (!text) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, text_part(text));
    }
    return list;
}

// Parts become lines, as OpenAI-compatible servers join them.
static void join_parts(json_t *message, const json_t *list)
{
    struct strbuf text = { 0 };
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *part = json_object_get(json_array_get(list, i), "text");
        strbuf_add(&text, "\n", i > 0);
        strbuf_add(&text, json_string_value(part), json_string_length(part));
    }
    message_set_text(message, &text);
}

static bool normalise_content(json_t *message, size_t index, bool keep_list, struct error *err)
{
    const json_t *content = json_object_get(message, "content");
    if (!content || json_is_null(content))
        return json_object_set_new(message, "content", json_string("")) == 0;
    if (json_is_string(content))
        return true;
    if (!json_is_array(content))
        return fail(err, "messages[%zu].content is neither a string nor a list of parts", index);
    json_t *list = parts_as_list(content, index, err);
    if (!list)
        return false;
    if (keep_list)
        json_object_set(message, "content", list);
    else
        join_parts(message, list);
    json_decref(list);
    return true;
}

// ---- earlier thoughts ---------------------------------------------------------------------------------------------

// The keys under which clients send an assistant's thoughts back; the first that has some counts.
static const char *const thought_keys[] = { "reasoning_content", "reasoning", "thinking" };

static json_t *thought_of_keys(const json_t *message)
{
    json_t *thought = NULL;
    for (size_t i = 0; i < sizeof thought_keys / sizeof *thought_keys; i++) {
        json_t *value = json_object_get(message, thought_keys[i]);
        if (!thought && json_string_length(value))
            thought = value;
    }
    return json_incref(thought);
}

// A part of the content that is a thought: its text, or a list of parts with the text (Mistral).
static bool add_block(const json_t *part, struct strbuf *out)
{
    const json_t *type = json_object_get(part, "type"), *thinking = json_object_get(part, "thinking"), *item;
    struct bytes text = json_bytes(thinking);
    size_t index;
    if (!is_text(type, "thinking"))
        return false;
    strbuf_add(out, text.data, text.len);
    json_array_foreach (thinking, index, item) {
        struct bytes own = json_bytes(json_object_get(item, "text"));
        strbuf_add(out, own.data, own.len);
    }
    return true;
}

// Takes the thoughts out of a list of parts.
static void take_blocks(json_t *message, struct strbuf *out)
{
    json_t *content = json_object_get(message, "content"), *part;
    size_t index;
    if (!json_is_array(content))
        return;
    json_t *rest = json_array();
    json_array_foreach (content, index, part)
        if (!add_block(part, out))
            json_array_append(rest, part);
    json_object_set_new(message, "content", rest);
}

static void normalise_thought(json_t *message)
{
    struct strbuf blocks = { 0 };
    if (!message_has_role(message, "assistant"))
        return;
    json_t *thought = thought_of_keys(message);
    take_blocks(message, &blocks);
    for (size_t i = 0; i < sizeof thought_keys / sizeof *thought_keys; i++) {
        const json_t *value = json_object_get(message, thought_keys[i]);
        if (json_is_string(value) || json_is_null(value))
            json_object_del(message, thought_keys[i]);
    }
    if (!thought && blocks.len)
        thought = json_stringn(blocks.data, blocks.len);
    if (thought)
        json_object_set_new(message, MESSAGE_THOUGHT, thought);
    strbuf_free(&blocks);
}

// ---- earlier calls ------------------------------------------------------------------------------------------------

// A call's arguments as an object. A string that spells none stays as it is; of an empty one {} is meant. NULL: there
// is no room for them.
static json_t *arguments_of(json_t *arguments, size_t *room)
{
    struct bytes text = json_bytes(arguments);
    json_t *object = NULL;
    struct error ignored;
    if (!arguments || json_is_null(arguments) || (text.data && !text.len))
        return json_object();
    size_t memory = text.data ? json_memory(text) : 0;
    if (memory > *room)
        return NULL;
    *room -= memory;
    if (text.data && json_read(text, &object, &ignored) && json_is_object(object))
        return object;
    json_decref(object);
    return json_incref(arguments);
}

static json_t *normalise_call(const json_t *call, size_t message, size_t index, size_t *room, struct error *err)
{
    const json_t *function = json_object_get(call, "function");
    if (!json_is_string(json_object_get(function, "name")))
        return fail(err, "messages[%zu].tool_calls[%zu] has no function with a name", message, index), NULL;
    json_t *arguments = arguments_of(json_object_get(function, "arguments"), room);
    if (!arguments)
        return fail(err, "messages[%zu].tool_calls[%zu] and the calls before it have arguments of more than %d MB",
                    message, index, MESSAGES_ARGUMENTS_BYTES_MAX >> 20),
               NULL;
    json_t *own_call = json_copy((json_t *)call), *own_function = json_copy((json_t *)function);
    json_object_set_new(own_function, "arguments", arguments);
    json_object_set_new(own_call, "function", own_function);
    return own_call;
}

// Clients send `"tool_calls": null` along; templates ask whether the key is there.
static bool normalise_calls(json_t *message, size_t index, size_t *room, struct error *err)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!calls)
        return true;
    if (json_is_null(calls) || (json_is_array(calls) && !json_array_size(calls)))
        return json_object_del(message, "tool_calls") == 0;
    if (!json_is_array(calls))
        return fail(err, "messages[%zu].tool_calls is not a list", index);
    json_t *own = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = normalise_call(json_array_get(calls, i), index, i, room, err);
        if (!call) {
            json_decref(own);
            return false;
        }
        json_array_append_new(own, call);
    }
    return json_object_set_new(message, "tool_calls", own) == 0;
}

// ---- OpenAI's other keys ------------------------------------------------------------------------------------------

// Keys that a template would pass over, and with them what the message says.
static bool refuse_lost(const json_t *message, size_t index, struct error *err)
{
    static const struct {
        const char *key, *instead;
    } lost[] = {
        { "function_call", "write the call in tool_calls, and its result as a message of the role tool" },
        { "audio", "this model reads text only" },
    };
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        const json_t *value = json_object_get(message, lost[i].key);
        if (value && !json_is_null(value))
            return fail(err, "messages[%zu].%s is not supported; %s", index, lost[i].key, lost[i].instead);
    }
    return true;
}

// A refusal is what an assistant said instead of a content.
static void use_refusal(json_t *message)
{
    json_t *content = json_object_get(message, "content"), *refusal = json_object_get(message, "refusal");
    if ((!content || json_is_null(content)) && json_is_string(refusal))
        json_object_set(message, "content", refusal);
}

// ---- conversations ------------------------------------------------------------------------------------------------

static bool normalise_message(json_t *message, size_t index, bool keep_lists, size_t *room, struct error *err)
{
    if (!json_is_string(json_object_get(message, "role")))
        return fail(err, "messages[%zu] has no role; write {\"role\": \"user\", \"content\": \"...\"}", index);
    if (message_has_role(message, "developer"))
        json_object_set_new(message, "role", json_string("system"));
    normalise_thought(message);
    use_refusal(message);
    return refuse_lost(message, index, err)
        && normalise_content(message, index, keep_lists && message_has_role(message, "user"), err)
        && normalise_calls(message, index, room, err);
}

json_t *messages_normalise(const json_t *messages, bool keep_lists, struct error *err)
{
    if (!json_is_array(messages))
        return fail(err, "messages is not a list; write [{\"role\": \"user\", \"content\": \"...\"}]"), NULL;
    json_t *own = json_array();
    size_t room = MESSAGES_ARGUMENTS_BYTES_MAX;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_copy(json_array_get(messages, i));
        json_array_append_new(own, message);
        if (!normalise_message(message, i, keep_lists, &room, err)) {
            json_decref(own);
            return NULL;
        }
    }
    return own;
}

void messages_as_lists(json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        if (json_is_string(content)) {
            json_t *list = json_array();
            json_array_append_new(list, text_part(content));
            json_object_set_new(message, "content", list);
        }
    }
}

void messages_fold_system(json_t *messages)
{
    json_t *user = json_array_get(messages, 1);
    if (!message_has_role(user, "user"))
        return;
    struct bytes first = message_text(json_array_get(messages, 0)), second = message_text(user);
    struct strbuf text = { 0 };
    strbuf_add(&text, first.data, first.len);
    strbuf_add_text(&text, "\n\n");
    strbuf_add(&text, second.data, second.len);
    message_set_text(user, &text);
    json_array_remove(messages, 0);
}
