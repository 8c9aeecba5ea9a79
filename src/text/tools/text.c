// SPDX-License-Identifier: Apache-2.0
// text/tools/text.c: tools as a system message, for models whose chat template does not take them.
#include "format/json.h"
#include "text/messages.h"
#include "text/tools/form.h"

// An example of a call, with a VALUE that may be of any type.
static void add_example(const struct tool_form *form, struct strbuf *out)
{
    static const char value[] = "\"VALUE\"";
    struct strbuf text = { 0 };
    json_t *calls = json_pack("[{s:s, s:{s:s}}]", "name", "TOOL", "arguments", "ARGUMENT", "VALUE");
    tool_form_write(form, calls, &text);
    json_decref(calls);
    char *quoted = strstr(text.data, value);
    size_t before = quoted ? (size_t)(quoted - text.data) : text.len;
    strbuf_add(out, text.data, before);
    if (quoted)
        strbuf_add_format(out, "VALUE%s", quoted + sizeof value - 1);
    strbuf_free(&text);
}

static void describe(const struct tool_form *form, const json_t *tools, struct strbuf *out)
{
    strbuf_add_text(out, "You can use these tools:\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_add(json_object_get(json_array_get(tools, i), "function"), out);
        strbuf_add_byte(out, '\n');
    }
    strbuf_add_text(out, "\nTo use a tool, answer only with its name and arguments, in exactly this form:\n");
    add_example(form, out);
    strbuf_add_text(out, "\nYou will then get its result in <tool_response>. When no tool is needed, answer in words.");
}

static void add_calls(const struct tool_form *form, const json_t *calls, struct strbuf *out)
{
    json_t *functions = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++)
        json_array_append(functions, json_object_get(json_array_get(calls, i), "function"));
    strbuf_add(out, "\n", out->len > 0 && json_array_size(functions));
    tool_form_write(form, functions, out);
    json_decref(functions);
}

static void add_text(struct strbuf *out, const json_t *message)
{
    struct bytes text = message_text(message);
    strbuf_add(out, text.data, text.len);
}

static json_t *new_message(const char *role, struct strbuf *text)
{
    json_t *message = json_pack("{s:s}", "role", role);
    message_set_text(message, text);
    return message;
}

// An assistant's message with its calls written out.
static json_t *calls_as_text(const struct tool_form *form, const json_t *message)
{
    json_t *own = json_copy((json_t *)message);
    struct strbuf text = { 0 };
    add_text(&text, message);
    add_calls(form, json_object_get(message, "tool_calls"), &text);
    message_set_text(own, &text);
    json_object_del(own, "tool_calls");
    return own;
}

// The results from *index on as one message: templates may insist that user and assistant take turns.
static json_t *results_as_text(const json_t *messages, size_t *index)
{
    struct strbuf text = { 0 };
    for (; message_has_role(json_array_get(messages, *index), "tool"); ++*index) {
        strbuf_add(&text, "\n", text.len > 0);
        strbuf_add_text(&text, "<tool_response>\n");
        add_text(&text, json_array_get(messages, *index));
        strbuf_add_text(&text, "\n</tool_response>");
    }
    return new_message("user", &text);
}

// The message at *index, or the run of results that begins there; moves on behind it.
static json_t *next_as_text(const struct tool_form *form, const json_t *messages, size_t *index)
{
    const json_t *message = json_array_get(messages, *index);
    if (message_has_role(message, "tool"))
        return results_as_text(messages, index);
    ++*index;
    return json_object_get(message, "tool_calls") ? calls_as_text(form, message) : json_copy((json_t *)message);
}

json_t *tools_as_text(const struct tool_form *form, const json_t *messages, const json_t *tools)
{
    json_t *own = json_array();
    size_t index = 0;
    if (json_array_size(tools)) {
        struct strbuf text = { 0 };
        if (message_has_role(json_array_get(messages, 0), "system")) {
            add_text(&text, json_array_get(messages, index++));
            strbuf_add_text(&text, "\n\n");
        }
        describe(form, tools, &text);
        json_array_append_new(own, new_message("system", &text));
    }
    while (index < json_array_size(messages))
        json_array_append_new(own, next_as_text(form, messages, &index));
    return own;
}
