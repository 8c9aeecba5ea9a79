// SPDX-License-Identifier: Apache-2.0
// text/template/filters_text.c: filters that make strings.
#include "text/template/builtin.h"
#include "text/template/eval.h"
#include "text/template/format.h"
#include "text/template/print.h"
#include "text/template/split.h"
#include "text/template/unicode.h"
#include "text/template/wrap.h"

// The string method of that name, on the value's text, with the given arguments.
static struct value by_method(struct call *call, const char *name, size_t count)
{
    while (count && !value_given(call->arg[count - 1]))
        count--;
    struct arguments arguments = { .values = call->arg, .count = count };
    const struct builtin *method = method_find(VALUE_STRING, bytes_of(name));
    return method_call(call->render, method, string_of(call->render, call->self), &arguments);
}

static struct value filter_capitalize(struct call *call) { return by_method(call, "capitalize", 0); }
static struct value filter_lower(struct call *call) { return by_method(call, "lower", 0); }
static struct value filter_upper(struct call *call) { return by_method(call, "upper", 0); }
static struct value filter_trim(struct call *call) { return by_method(call, "strip", 1); }

static struct value filter_center(struct call *call)
{
    if (!value_given(call->arg[0]))
        call->arg[0] = value_int(80);
    return by_method(call, "center", 1);
}

static struct value filter_replace(struct call *call)
{
    call->self = string_of(call->render, call->self);
    call->self.safe = false;
    for (int i = 0; i < 2; i++)
        call->arg[i] = string_of(call->render, call->arg[i]);
    if (call->arg[2].type == VALUE_NONE)
        call->arg[2].type = VALUE_MISSING;
    return by_method(call, "replace", 3);
}

static struct value filter_string(struct call *call) { return string_of(call->render, call->self); }
static struct value filter_escape(struct call *call) { return escape_html(call->render, call->self); }

static struct value filter_forceescape(struct call *call)
{
    struct value text = string_of(call->render, call->self);
    text.safe = false;
    return escape_html(call->render, text);
}

static struct value filter_safe(struct call *call)
{
    struct value text = string_of(call->render, call->self);
    text.safe = true;
    return text;
}

static struct value filter_format(struct call *call)
{
    struct value format = string_of(call->render, call->self), values;
    if (call->all->count && call->all->keyword_count)
        return trouble(call->render, "format takes arguments with or without names, not both");
    if (call->all->keyword_count) {
        values = value_dict(dict_new(call->render, 0));
        for (size_t i = 0; i < call->all->keyword_count; i++) {
            struct keyword keyword = call->all->keywords[i];
            dict_put(call->render, values.dict, value_string(keyword.name), keyword.value);
        }
    } else {
        values = value_tuple(list_new(call->render, 0));
        for (size_t i = 0; i < call->all->count; i++)
            list_add(call->render, values.list, call->all->values[i]);
    }
    return format_percent(call->render, format, values);
}

// The string that a filter insists on; trouble when it is something else.
static struct bytes text_only(struct call *call, const char *filter)
{
    if (call->self.type == VALUE_STRING)
        return call->self.string;
    if (call->self.type == VALUE_UNDEFINED)
        trouble_undefined(call->render, call->self);
    else
        trouble(call->render, "%s takes a string, not %s", filter, value_kind(call->self));
    return bytes_of("");
}

static struct value filter_indent(struct call *call)
{
    struct render *render = call->render;
    struct bytes text = text_only(call, "indent"), indent;
    size_t mark = text_mark(render);
    if (call->arg[0].type == VALUE_STRING) {
        indent = call->arg[0].string;
    } else {
        int64_t width = call_int(call, 0, 4);
        text_put_fill(render, bytes_of(" "), width > 0 ? (size_t)width : 0);
        indent = text_take(render, mark).string;
    }
    text_put(render, text);
    text_put_byte(render, '\n'); // without it, splitting would lose a line end at the end
    struct list *lines = split_lines(render, text_take(render, mark).string, false);
    bool blank = call_truth(call, 2, false);
    text_put(render, call_truth(call, 1, false) ? indent : bytes_of(""));
    for (size_t i = 0; i < lines->count && !render->failed; i++) {
        text_put(render, bytes_of(i ? "\n" : ""));
        text_put(render, i && (blank || lines->items[i].string.len) ? indent : bytes_of(""));
        text_put(render, lines->items[i].string);
    }
    struct value result = text_take(render, mark);
    result.safe = call->self.safe;
    return result;
}

static struct value filter_truncate(struct call *call)
{
    struct render *render = call->render;
    struct bytes end = call_string(call, 2, "...");
    int64_t length = call_int(call, 0, 255), leeway = call_has(call, 3) ? call_int(call, 3, 5) : 5;
    int64_t end_length = (int64_t)unicode_count(end);
    if (length < end_length || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX)
        return trouble(render, "truncate takes a length that has room for its end, and a leeway that is not negative");
    size_t given;
    if (value_length(render, call->self, &given) && (int64_t)given <= length + leeway)
        return call->self;
    struct bytes text = text_only(call, "truncate");
    text.len = unicode_offset(text, (size_t)(length - end_length));
    const char *space = !call_truth(call, 1, false) && text.len ? memrchr(text.data, ' ', text.len) : NULL;
    if (space)
        text.len = (size_t)(space - text.data);
    size_t mark = text_mark(render);
    text_put(render, text);
    text_put(render, end);
    return text_take(render, mark);
}

static bool begins_word(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || unicode_is_space(c);
}

// Words begin after white space, hyphens and opening brackets, which is not what the method title() does.
static struct value filter_title(struct call *call)
{
    struct render *render = call->render;
    struct value text = string_of(render, call->self);
    struct bytes rest = text.string;
    size_t mark = text_mark(render);
    render_step_characters(render, rest.len * 2);
    while (rest.len && render_step(render, 1)) {
        size_t first, end = 0, length;
        bool between = begins_word(unicode_first(rest, &first));
        while (end < rest.len && begins_word(unicode_first(rest_of(rest, end), &length)) == between)
            end += length;
        unicode_upper(render->out, (struct bytes){ rest.data, first });
        unicode_lower(render->out, (struct bytes){ rest.data + first, end - first });
        rest = rest_of(rest, end);
    }
    return text_take(render, mark);
}

static struct value filter_wordcount(struct call *call)
{
    struct bytes text = string_of(call->render, call->self).string;
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0, length; at < text.len; at += length) {
        bool word = unicode_is_word(unicode_first(rest_of(text, at), &length));
        words += word && !inside;
        inside = word;
    }
    render_step_characters(call->render, text.len);
    return value_int(words);
}

static struct value filter_wordwrap(struct call *call)
{
    struct wrapping wrapping = {
        .width = call_int(call, 0, 79),
        .break_long_words = call_truth(call, 1, true),
        .break_on_hyphens = call_truth(call, 3, true),
        .line_end = call_has(call, 2) ? call_string(call, 2, "\n") : bytes_of("\n"),
    };
    struct bytes text = text_only(call, "wordwrap");
    if (wrapping.width <= 0)
        return trouble(call->render, "wordwrap takes a width of at least 1");
    return wrap_text(call->render, text, &wrapping);
}

static void put_quoted(struct render *render, struct bytes text, bool query)
{
    render_step_characters(render, text.len * 3);
    for (size_t i = 0; i < text.len && !render->failed; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z', digit = c >= '0' && c <= '9';
        if (letter || digit || (c && strchr("_.-~", c)) || (c == '/' && !query))
            text_put_byte(render, (char)c);
        else if (c == ' ' && query)
            text_put_byte(render, '+');
        else
            text_put_format(render, "%%%02X", c);
    }
}

static struct value filter_urlencode(struct call *call)
{
    struct render *render = call->render;
    struct value self = call->self, item;
    size_t mark = text_mark(render);
    if (self.type == VALUE_STRING || !value_is_iterable(self)) {
        struct value text = string_of(render, self);
        put_quoted(render, text.string, false);
        return text_take(render, mark);
    }
    if (self.type == VALUE_DICT)
        self = value_view(self.dict, VIEW_ITEMS);
    struct iterator *iterator = iterator_of(render, self);
    for (size_t i = 0; iterator_next(render, iterator, &item); i++) {
        struct list *pair = list_from(render, item);
        if (pair->count != 2)
            return text_drop(render, mark), trouble(render, "urlencode takes pairs");
        text_put(render, bytes_of(i ? "&" : ""));
        put_quoted(render, string_of(render, pair->items[0]).string, true);
        text_put_byte(render, '=');
        put_quoted(render, string_of(render, pair->items[1]).string, true);
    }
    return text_take(render, mark);
}

static struct value filter_xmlattr(struct call *call)
{
    struct render *render = call->render;
    if (call->self.type != VALUE_DICT)
        return trouble(render, "xmlattr takes a dict, not %s", value_kind(call->self));
    size_t mark = text_mark(render);
    bool space = call_truth(call, 0, true);
    for (size_t i = 0; i < call->self.dict->count && !render->failed; i++) {
        struct entry entry = call->self.dict->entries[i];
        if (entry.value.type == VALUE_NONE || entry.value.type == VALUE_UNDEFINED)
            continue;
        struct bytes name = entry.key.type == VALUE_STRING ? entry.key.string : bytes_of(" ");
        for (size_t k = 0; k < name.len; k++)
            if (!name.data[k] || strchr(" \t\n\r\f\v/>=", name.data[k]))
                return text_drop(render, mark), trouble(render, "xmlattr takes names without spaces, /, > and =");
        text_put(render, bytes_of(space ? " " : ""));
        print_value(render, escape_html(render, entry.key));
        text_put(render, bytes_of("=\""));
        print_value(render, escape_html(render, entry.value));
        text_put_byte(render, '"');
        space = true;
    }
    return text_take(render, mark);
}

static const struct builtin rows[] = {
    { "trim", filter_trim, 0, "chars" },
    { "upper", filter_upper, 0, "" },
    { "lower", filter_lower, 0, "" },
    { "string", filter_string, 0, "" },
    { "replace", filter_replace, 2, "old new count" },
    { "indent", filter_indent, 0, "width first blank" },
    { "capitalize", filter_capitalize, 0, "" },
    { "title", filter_title, 0, "" },
    { "safe", filter_safe, 0, "" },
    { "escape", filter_escape, 0, "" },
    { "e", filter_escape, 0, "" },
    { "forceescape", filter_forceescape, 0, "" },
    { "format", filter_format, 0, "*" },
    { "center", filter_center, 0, "width" },
    { "truncate", filter_truncate, 0, "length killwords end leeway" },
    { "striptags", filter_striptags, 0, "" },
    { "urlencode", filter_urlencode, 0, "" },
    { "wordcount", filter_wordcount, 0, "" },
    { "wordwrap", filter_wordwrap, 0, "width break_long_words wrapstring break_on_hyphens" },
    { "xmlattr", filter_xmlattr, 0, "autospace" },
};

const struct builtin_table text_filters = { rows, sizeof rows / sizeof *rows };
