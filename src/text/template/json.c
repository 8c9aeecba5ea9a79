// SPDX-License-Identifier: Apache-2.0
// text/template/json.c: json.dumps of Python, byte for byte.
#include <inttypes.h>
#include <math.h>

#include "text/template/print.h"
#include "text/template/unicode.h"

static void json_value(struct render *render, struct value value, const struct json_style *style, size_t level);

static void json_escape(struct render *render, uint32_t c)
{
    static const char letters[] = "bfnrt\"\\", meanings[] = "\b\f\n\r\t\"\\";
    const char *at = c && c < 0x80 ? strchr(meanings, (int)c) : NULL;
    if (at)
        text_put_format(render, "\\%c", letters[at - meanings]);
    else if (c < 0x10000)
        text_put_format(render, "\\u%04" PRIx32, c);
    else
        text_put_format(render, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
}

static void json_string(struct render *render, struct bytes text, bool ascii)
{
    size_t plain = 0; // bytes in front of `at` that need no escape and are not put yet
    render_step_characters(render, text.len / 2);
    text_put_byte(render, '"');
    for (size_t at = 0, length; at < text.len && !render->failed; at += length) {
        unsigned char byte = (unsigned char)text.data[at];
        length = 1;
        bool escaped = byte < 0x20 || byte == '"' || byte == '\\' || (ascii && byte >= 0x7F);
        if (!escaped) {
            plain++;
            continue;
        }
        text_put(render, (struct bytes){ text.data + at - plain, plain });
        plain = 0;
        json_escape(render, unicode_first(bytes_from(text, at), &length));
    }
    text_put(render, (struct bytes){ text.data + text.len - plain, plain });
    text_put_byte(render, '"');
}

static void json_number(struct render *render, double number)
{
    if (isfinite(number))
        print_float(render, number);
    else
        text_put(render, bytes_of(isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity"));
}

static void json_new_line(struct render *render, const struct json_style *style, size_t level)
{
    if (!style->indented)
        return;
    text_put_byte(render, '\n');
    text_put_fill(render, style->indent, level);
}

static void json_list(struct render *render, const struct list *list, const struct json_style *style, size_t level)
{
    text_put_byte(render, '[');
    for (size_t i = 0; i < list->count && render_step(render, 1); i++) {
        text_put(render, i ? style->item_end : (struct bytes){ 0 });
        json_new_line(render, style, level + 1);
        json_value(render, list->items[i], style, level + 1);
    }
    if (list->count)
        json_new_line(render, style, level);
    text_put_byte(render, ']');
}

static void json_key(struct render *render, struct value key, const struct json_style *style)
{
    size_t mark = text_mark(render);
    if (key.type == VALUE_STRING) {
        json_string(render, key.string, style->ascii);
        return;
    }
    if (!value_is_number(key) && key.type != VALUE_NONE)
        render_fail(render, "tojson: %s cannot be a key", value_kind(key));
    json_value(render, key, style, 0);
    struct value text = text_take(render, mark);
    json_string(render, text.string, style->ascii);
}

// The entries of a dict as (key, value) tuples in the order of their keys.
static struct list *sorted_entries(struct render *render, const struct dict *dict)
{
    struct list *entries = list_new(render, dict->count), *keys = list_new(render, dict->count);
    for (size_t i = 0; i < dict->count; i++) {
        list_add(render, entries, value_pair(render, dict->entries[i].key, dict->entries[i].value));
        list_add(render, keys, dict->entries[i].key);
    }
    list_sort(render, entries, keys, false);
    return entries;
}

static void json_dict(struct render *render, const struct dict *dict, const struct json_style *style, size_t level)
{
    const struct list *sorted = style->sorted ? sorted_entries(render, dict) : NULL;
    text_put_byte(render, '{');
    for (size_t i = 0; i < dict->count && render_step(render, 1); i++) {
        struct entry entry = dict->entries[i];
        if (sorted)
            entry = (struct entry){ sorted->items[i].list->items[0], sorted->items[i].list->items[1] };
        text_put(render, i ? style->item_end : (struct bytes){ 0 });
        json_new_line(render, style, level + 1);
        json_key(render, entry.key, style);
        text_put(render, style->key_end);
        json_value(render, entry.value, style, level + 1);
    }
    if (dict->count)
        json_new_line(render, style, level);
    text_put_byte(render, '}');
}

static void json_value(struct render *render, struct value value, const struct json_style *style, size_t level)
{
    if (!render_enter(render))
        return;
    switch (value.type) {
    case VALUE_NONE: text_put(render, bytes_of("null")); break;
    case VALUE_BOOL: text_put(render, bytes_of(value.truth ? "true" : "false")); break;
    case VALUE_INT: text_put_format(render, "%" PRId64, value.integer); break;
    case VALUE_FLOAT: json_number(render, value.number); break;
    case VALUE_STRING: json_string(render, value.string, style->ascii); break;
    case VALUE_LIST:
    case VALUE_TUPLE: json_list(render, value.list, style, level); break;
    case VALUE_DICT: json_dict(render, value.dict, style, level); break;
    default: render_fail(render, "tojson: %s cannot be written as JSON", value_kind(value)); break;
    }
    render_leave(render);
}

void print_json(struct render *render, struct value value, const struct json_style *style)
{
    json_value(render, value, style, 0);
}
