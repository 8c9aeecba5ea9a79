// SPDX-License-Identifier: Apache-2.0
// text/template/pretty.c: Python's pprint. What fits into the line is printed as it is, dicts in the order of their
// keys; what does not fit gets a line per item, and long strings are cut between words.
#include "text/template/print.h"
#include "text/template/split.h"
#include "text/template/unicode.h"

enum { PRETTY_WIDTH = 80 };

// Where a value is printed: columns before it, columns needed behind it, and how deep it is.
struct place {
    size_t indent, allowance, level;
};

static void pretty(struct render *render, struct value value, struct place place);

// A copy whose dicts are in the order of their keys, where the keys have one.
static struct value sorted_copy(struct render *render, struct value value)
{
    bool list = value_is_list(value);
    if ((!list && value.type != VALUE_DICT) || !render_enter(render))
        return value;
    struct list *items = list_new(render, 0), *keys = list_new(render, 0);
    if (list) {
        for (size_t i = 0; i < value.list->count && !render->failed; i++)
            list_add(render, items, sorted_copy(render, value.list->items[i]));
        value.list = items;
    } else {
        bool alike = true;
        for (size_t i = 0; i < value.dict->count && !render->failed; i++) {
            struct entry entry = value.dict->entries[i];
            list_add(render, items, value_pair(render, entry.key, sorted_copy(render, entry.value)));
            list_add(render, keys, entry.key);
            alike &= entry.key.type == VALUE_STRING;
        }
        if (alike)
            list_sort(render, items, keys, false);
        struct dict *dict = dict_new(render, items->count);
        for (size_t i = 0; i < items->count && !render->failed; i++)
            dict_append(render, dict, items->items[i].list->items[0], items->items[i].list->items[1]);
        value.dict = dict;
    }
    render_leave(render);
    return value;
}

static struct value repr_of(struct render *render, struct value value)
{
    size_t mark = text_mark(render);
    print_repr(render, value);
    return text_take(render, mark);
}

static size_t repr_width(struct render *render, struct bytes text)
{
    return unicode_count(repr_of(render, value_string(text)).string);
}

static void new_line(struct render *render, size_t indent)
{
    text_put_byte(render, '\n');
    text_put_fill(render, bytes_of(" "), indent);
}

static void pretty_dict(struct render *render, const struct dict *dict, struct place place)
{
    text_put_byte(render, '{');
    for (size_t i = 0; i < dict->count && render_step(render, 1); i++) {
        struct bytes key = repr_of(render, dict->entries[i].key).string;
        text_put(render, key);
        text_put(render, bytes_of(": "));
        bool last = i + 1 == dict->count;
        size_t indent = place.indent + 1 + unicode_count(key) + 2;
        pretty(render, dict->entries[i].value, (struct place){ indent, last ? place.allowance + 1 : 1, place.level });
        if (!last) {
            text_put_byte(render, ',');
            new_line(render, place.indent + 1);
        }
    }
    text_put_byte(render, '}');
}

static void pretty_list(struct render *render, struct value value, struct place place)
{
    bool tuple = value.type == VALUE_TUPLE;
    struct bytes close = bytes_of(!tuple ? "]" : value.list->count == 1 ? ",)" : ")");
    text_put_byte(render, tuple ? '(' : '[');
    for (size_t i = 0; i < value.list->count && render_step(render, 1); i++) {
        bool last = i + 1 == value.list->count;
        size_t allowance = last ? place.allowance + close.len : 1;
        pretty(render, value.list->items[i], (struct place){ place.indent + 1, allowance, place.level });
        if (!last) {
            text_put_byte(render, ',');
            new_line(render, place.indent + 1);
        }
    }
    text_put(render, close);
}

// Bytes of a word and the white space behind it.
static size_t word_length(struct bytes text)
{
    size_t at = 0, length = 0;
    for (int space = 0; space < 2; space++)
        while (at < text.len && unicode_is_space(unicode_first(rest_of(text, at), &length)) == space)
            at += length;
    return at;
}

// Cuts a line of a string into chunks whose repr fits.
static void add_chunks(struct render *render, struct list *chunks, struct bytes line, size_t width, size_t last_width)
{
    size_t start = 0, end = 0;
    while (end < line.len && render_step(render, 1)) {
        size_t next = end + word_length(rest_of(line, end));
        size_t limit = next == line.len ? last_width : width;
        if (end > start && repr_width(render, (struct bytes){ line.data + start, next - start }) > limit) {
            list_add(render, chunks, value_string((struct bytes){ line.data + start, end - start }));
            start = end;
        }
        end = next;
    }
    if (start < line.len)
        list_add(render, chunks, value_string(rest_of(line, start)));
}

static void pretty_string(struct render *render, struct value value, struct place place)
{
    const struct list *lines = split_lines(render, value.string, true);
    struct list *chunks = list_new(render, 0);
    bool outermost = place.level == 1;
    size_t indent = place.indent + outermost, allowance = place.allowance + outermost;
    size_t width = indent < PRETTY_WIDTH ? PRETTY_WIDTH - indent : 0;
    size_t last_width = allowance < width ? width - allowance : 0;
    for (size_t i = 0; i < lines->count && render_step(render, 1); i++) {
        struct bytes line = lines->items[i].string;
        size_t limit = i + 1 == lines->count ? last_width : width;
        if (repr_width(render, line) <= limit)
            list_add(render, chunks, value_string(line));
        else
            add_chunks(render, chunks, line, width, limit);
    }
    bool wrapped = outermost && chunks->count > 1;
    text_put(render, bytes_of(wrapped ? "(" : ""));
    for (size_t i = 0; i < chunks->count && !render->failed; i++) {
        if (i)
            new_line(render, indent);
        print_repr(render, chunks->items[i]);
    }
    text_put(render, bytes_of(wrapped ? ")" : ""));
}

static void pretty(struct render *render, struct value value, struct place place)
{
    if (!render_enter(render))
        return;
    struct value text = repr_of(render, value);
    place.level++;
    if (unicode_count(text.string) + place.indent + place.allowance <= PRETTY_WIDTH)
        text_put(render, text.string);
    else if (value.type == VALUE_DICT)
        pretty_dict(render, value.dict, place);
    else if (value_is_list(value))
        pretty_list(render, value, place);
    else if (value.type == VALUE_STRING && value.string.len && !value.safe)
        pretty_string(render, value, place);
    else
        text_put(render, text.string);
    render_leave(render);
}

void print_pretty(struct render *render, struct value value)
{
    pretty(render, sorted_copy(render, value), (struct place){ 0 });
}
