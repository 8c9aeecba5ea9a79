// SPDX-License-Identifier: Apache-2.0
// text/template/split.c: the string methods that split, and the search from the end that they need.
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

static struct list *split_spaces(struct render *render, struct bytes text, int64_t limit)
{
    struct list *words = list_new(render, 0);
    render_step_characters(render, text.len);
    for (text = unicode_strip_left(text); text.len && render_step(render, 1); text = unicode_strip_left(text)) {
        size_t end = limit ? 0 : text.len, length;
        while (end < text.len && !unicode_is_space(unicode_first(bytes_from(text, end), &length)))
            end += length;
        add(render, words, text.data, text.data + end);
        text = bytes_from(text, end);
        limit -= limit > 0;
    }
    return words;
}

static struct list *rsplit_spaces(struct render *render, struct bytes text, int64_t limit)
{
    struct list *words = list_new(render, 0);
    render_step_characters(render, text.len);
    for (text = unicode_strip_right(text); text.len && render_step(render, 1); text = unicode_strip_right(text)) {
        size_t start = limit ? text.len : 0, length;
        while (start && !unicode_is_space(unicode_last((struct bytes){ text.data, start }, &length)))
            start -= length;
        add(render, words, text.data + start, text.data + text.len);
        text.len = start;
        limit -= limit > 0;
    }
    return words;
}

static struct list *split_at(struct render *render, struct bytes text, struct bytes separator, int64_t limit)
{
    struct list *parts = list_new(render, 0);
    const char *at;
    render_step_bytes(render, text.len);
    while (limit != 0 && render_step(render, 1) && (at = memmem(text.data, text.len, separator.data, separator.len))) {
        add(render, parts, text.data, at);
        text = bytes_from(text, (size_t)(at - text.data) + separator.len);
        limit -= limit > 0;
    }
    add(render, parts, text.data, text.data + text.len);
    return parts;
}

static struct list *rsplit_at(struct render *render, struct bytes text, struct bytes separator, int64_t limit)
{
    struct list *parts = list_new(render, 0);
    const char *at;
    while (limit != 0 && render_step(render, 1) && (at = search_last(render, text, separator))) {
        add(render, parts, at + separator.len, text.data + text.len);
        text.len = (size_t)(at - text.data);
        limit -= limit > 0;
    }
    add(render, parts, text.data, text.data + text.len);
    return parts;
}

struct value string_split(struct call *call)
{
    struct bytes text = call->self.string;
    int64_t limit = call_int(call, 1, -1);
    if (!call_has(call, 0))
        return value_list(split_spaces(call->render, text, limit));
    struct bytes separator = call_string(call, 0, " ");
    if (!separator.len)
        return trouble(call->render, "a string cannot be split at an empty one");
    return value_list(split_at(call->render, text, separator, limit));
}

struct value string_rsplit(struct call *call)
{
    struct bytes text = call->self.string;
    int64_t limit = call_int(call, 1, -1);
    if (!call_has(call, 0))
        return reversed(rsplit_spaces(call->render, text, limit));
    struct bytes separator = call_string(call, 0, " ");
    if (!separator.len)
        return trouble(call->render, "a string cannot be split at an empty one");
    return reversed(rsplit_at(call->render, text, separator, limit));
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
