// SPDX-License-Identifier: Apache-2.0
// Two bytes choose the shape that a template wants, the rest is a client's list of messages. Normalised and brought
// into any shape they stay messages, what the client sent is not changed, and a template renders or continues them.
#include <stdlib.h>

#include "format/json.h"
#include "text/chat.h"
#include "text/message_shape.h"
#include "text/messages.h"

static const char template[] = "{% for m in messages %}<{{ m.role }}>{{ m.thinking }}"
                               "{% for p in m.content %}{{ p }}{% endfor %}"
                               "{% for c in m.tool_calls %}{{ c.id }}{{ c.function | tojson }}{% endfor %}{{ m.name }}"
                               "{{ m.tool_call_id }}{% endfor %}";

static struct message_shape shape_of(unsigned bits)
{
    struct message_shape shape = { .takes_system = true, .takes_tools = true };
    bool *const flags[] = { &shape.needs_lists,        &shape.one_system,       &shape.writes_calls,
                            &shape.writes_results,     &shape.one_call,         &shape.arguments_as_text,
                            &shape.no_content_is_null, &shape.calls_or_content, &shape.results_as_json,
                            &shape.thought_or_content, &shape.thought_blocks };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        *flags[i] = bits >> i & 1;
    shape.ids = (enum call_ids)((bits >> 11 & 3) % 3);
    shape.thought_key = bits >> 13 & 1 ? "thinking" : bits >> 14 & 1 ? MESSAGE_THOUGHT : NULL;
    shape.takes_lists = bits >> 15;
    return shape;
}

static void check_messages(const json_t *messages)
{
    if (!json_is_array(messages))
        abort();
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!json_is_string(json_object_get(json_array_get(messages, i), "role")))
            abort();
}

static void render(const struct chat *chat, json_t *messages, bool continues)
{
    json_t *request = json_pack("{s:O, s:b}", "messages", messages, "continue_final_message", continues);
    struct strbuf prompt = { 0 };
    struct error ignored;
    chat_render(chat, request, &prompt, &ignored);
    strbuf_free(&prompt);
    json_decref(request);
}

static void shape_messages(const struct chat *chat, unsigned bits, const json_t *sent)
{
    struct message_shape shape = shape_of(bits);
    struct error ignored;
    json_t *copy = json_deep_copy(sent), *messages = messages_normalise(sent, shape.takes_lists, &ignored);
    if (messages) {
        json_t *shaped = message_shape_apply(&shape, tools_form_default(), messages);
        check_messages(shaped);
        render(chat, shaped, false);
        render(chat, shaped, true);
        json_decref(shaped);
    }
    json_decref(messages);
    if (!json_equal(sent, copy))
        abort();
    json_decref(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct chat *chat;
    struct error err;
    json_t *sent;
    if (!chat)
        chat = chat_open_source(NULL, bytes_of(template), &err);
    if (size < 2 || !json_read((struct bytes){ (const char *)data + 2, size - 2 }, &sent, &err))
        return 0;
    shape_messages(chat, data[0] | (unsigned)data[1] << 8, sent);
    json_decref(sent);
    return 0;
}
