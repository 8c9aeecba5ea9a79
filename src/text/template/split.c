// SPDX-License-Identifier: Apache-2.0
// text/template/split.c: str.split, rsplit and splitlines of Python, and a search from the end.
#include "text/template/environment.h"
#include "text/template/unicode.h"

static void add(struct render *render, struct list *list, const char *from, const char *to)
{
    list_add(render, list, value_string((struct bytes){ from, (size_t)(to - from) }));
}

const char *search_last(struct render *render, struct bytes text, struct bytes part)
{
    if (part.len > text.len)
        return NULL;
    for (size_t at = text.len - part.len + 1; at-- > 0;) {
        const char *last = part.len ? memrchr(text.data, part.data[0], at + 1) : text.data + at;
        if (!last || !render_step_bytes(render, part.len + at - (size_t)(last - text.data)))
            return NULL;
        at = (size_t)(last - text.data);
        if (memcmp(last, part.data, part.len) == 0)
            return last;
    }
    return NULL;
}

// The pieces of rsplit are found from the end; this puts them in order.
static struct value reversed(struct list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        struct value swap = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = swap;
    }
    return value_list(list);
}

// Cuts the first word off *rest, or the last one; all of *rest is one when the limit is reached.
static struct bytes take_word(struct bytes *rest, bool last, bool all)
{
    struct bytes word = *rest;
    size_t at = last ? rest->len : 0, length;
    if (all)
        return rest->len = 0, word;
    if (last) {
        while (at && !unicode_is_space(unicode_last((struct bytes){ rest->data, at }, &length)))
            at -= length;
        word = bytes_from(*rest, at);
        rest->len = at;
    } else {
        while (at < rest->len && !unicode_is_space(unicode_first(bytes_from(*rest, at), &length)))
            at += length;
        word.len = at;
        *rest = bytes_from(*rest, at);
    }
    return word;
}

static void split_spaces(struct render *render, struct bytes text, bool last, int64_t limit, struct list *parts)
{
    render_step_characters(render, text.len);
    for (;;) {
        text = last ? unicode_strip_right(text) : unicode_strip_left(text);
        if (!text.len || !render_step(render, 1))
            return;
        list_add(render, parts, value_string(take_word(&text, last, !limit)));
        limit -= limit > 0;
    }
}

static void split_at(struct render *render, struct bytes text, struct bytes separator, bool last, int64_t limit,
                     struct list *parts)
{
    render_step_bytes(render, last ? 0 : text.len);
    for (const char *at; limit != 0 && render_step(render, 1); limit -= limit > 0) {
        at = last ? search_last(render, text, separator) : memmem(text.data, text.len, separator.data, separator.len);
        if (!at)
            break;
        size_t before = (size_t)(at - text.data);
        struct bytes left = { text.data, before }, right = bytes_from(text, before + separator.len);
        list_add(render, parts, value_string(last ? right : left));
        text = last ? left : right;
    }
    list_add(render, parts, value_string(text));
}

struct value string_split(struct call *call)
{
    bool last = call->what == AT_END;
    struct list *parts = list_new(call->render, 0);
    int64_t limit = call_int(call, 1, -1);
    struct bytes separator = call_has(call, 0) ? call_string(call, 0, " ") : bytes_of("");
    if (call_has(call, 0) && !separator.len)
        return render_fail(call->render, "a string cannot be split at an empty one");
    if (separator.len)
        split_at(call->render, call->self.string, separator, last, limit, parts);
    else
        split_spaces(call->render, call->self.string, last, limit, parts);
    return last ? reversed(parts) : value_list(parts);
}

struct list *split_lines(struct render *render, struct bytes text, bool keep_ends)
{
    struct list *lines = list_new(render, 0);
    size_t start = 0, length;
    for (size_t at = 0; at < text.len; at += length) {
        uint32_t c = unicode_first(bytes_from(text, at), &length);
        if (!unicode_is_line_end(c))
            continue;
        if (!render_step(render, 1))
            break;
        length += c == '\r' && at + 1 < text.len && text.data[at + 1] == '\n';
        add(render, lines, text.data + start, text.data + at + (keep_ends ? length : 0));
        start = at + length;
    }
    render_step_characters(render, text.len);
    if (start < text.len)
        add(render, lines, text.data + start, text.data + text.len);
    return lines;
}

struct value string_splitlines(struct call *call)
{
    return value_list(split_lines(call->render, call->self.string, call_truth(call, 0, false)));
}
