// SPDX-License-Identifier: Apache-2.0
#include "text/chat_continue.h"

#include <ctype.h>
#include <string.h>

#include "format/json.h"
#include "text/chat_probe.h"
#include "text/messages.h"

// Marks the end of the content. Its own end is white space that no template writes: where that is gone, the template
// trims contents.
#define MARK "nibble-continues-here"
#define MARK_SPACE "\t \t"

static bool check_last(const json_t *messages, struct error *err)
{
    size_t count = json_array_size(messages);
    const json_t *last = json_array_get(messages, count - 1); // none: NULL
    if (!message_has_role(last, "assistant"))
        return fail(err, "continue_final_message is true, and the last message is not the assistant's");
    return !json_array_size(json_object_get(last, "tool_calls"))
        || fail(err, "continue_final_message is true, and the last message has tool_calls");
}

bool chat_asks_to_continue(const json_t *request, bool *asked, struct error *err)
{
    const json_t *value = json_object_get(request, "continue_final_message");
    *asked = json_is_true(value);
    if (value && !json_is_boolean(value) && !json_is_null(value))
        return fail(err, "continue_final_message is not true or false");
    if (*asked && json_is_true(json_object_get(request, "add_generation_prompt")))
        return fail(err,
                    "continue_final_message and add_generation_prompt are both true; the last message is left "
                    "open, or a new one is begun");
    return !*asked || check_last(json_object_get(request, "messages"), err);
}

// The text with the mark behind it (new reference).
static json_t *marked(const json_t *text)
{
    struct bytes content = json_bytes(text);
    struct strbuf own = { 0 };
    strbuf_add(&own, content.data, content.len);
    strbuf_add_text(&own, MARK MARK_SPACE);
    json_t *value = json_stringn(own.data, own.len);
    strbuf_free(&own);
    return value;
}

// The content with the mark at its end; of a list of parts, at the end of the last text. NULL: there is no text.
static json_t *marked_content(const json_t *content)
{
    if (json_is_string(content))
        return marked(content);
    json_t *list = json_copy((json_t *)content);
    for (size_t i = json_array_size(list); i > 0; i--) {
        json_t *part = json_array_get(list, i - 1), *text = json_object_get(part, "text");
        if (!json_is_string(text))
            continue;
        json_t *own = json_copy(part);
        json_object_set_new(own, "text", marked(text));
        json_array_set_new(list, i - 1, own);
        return list;
    }
    json_decref(list);
    return NULL;
}

// The request with the mark in its last message (new reference); NULL with a sentence.
static json_t *mark_request(const json_t *request, struct error *err)
{
    const json_t *messages = json_object_get(request, "messages");
    size_t count = json_array_size(messages);
    const json_t *last = json_array_get(messages, count - 1);
    json_t *content = marked_content(json_object_get(last, "content"));
    if (!content)
        return fail(err, "continue_final_message is true, and the last message has no text to continue"), NULL;
    json_t *own_last = json_copy((json_t *)last), *own_messages = json_copy((json_t *)messages);
    json_t *own = json_copy((json_t *)request);
    json_object_set_new(own_last, "content", content);
    json_array_set_new(own_messages, count - 1, own_last);
    json_object_set_new(own, "messages", own_messages);
    json_object_set_new(own, "add_generation_prompt", json_false());
    json_object_del(own, "continue_final_message");
    return own;
}

// Where the last mark of a text begins; NULL: it has none.
static const char *last_mark(struct bytes text)
{
    for (const char *from = text.data, *found = NULL;;) {
        const char *next = from ? memmem(from, text.len - (size_t)(from - text.data), MARK, strlen(MARK)) : NULL;
        if (!next)
            return found;
        found = next;
        from = next + strlen(MARK);
    }
}

// Cuts the prompt at the mark. Where the template trims contents, the content's own end is trimmed, too.
static bool cut(struct strbuf *out, size_t start, struct error *err)
{
    struct bytes text = { out->data ? out->data + start : "", out->len - start };
    const char *mark = last_mark(text);
    if (!mark)
        return fail(err,
                    "continue_final_message is true, and the chat template does not write the last message's "
                    "content as it is");
    size_t end = (size_t)(mark - text.data);
    bool trimmed = !bytes_start_with(bytes_from(text, end + strlen(MARK)), bytes_of(MARK_SPACE));
    while (trimmed && end && isspace((unsigned char)text.data[end - 1]))
        end--;
    strbuf_cut(out, start + end);
    return true;
}

bool chat_continue(const struct chat *chat, const json_t *request, struct strbuf *out, struct error *err)
{
    size_t start = out->len;
    json_t *own = mark_request(request, err);
    bool ok = own && chat_render_within(chat, own, 0, out, err) && cut(out, start, err);
    json_decref(own);
    return ok;
}
