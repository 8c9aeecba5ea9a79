// SPDX-License-Identifier: Apache-2.0
// str() and repr() of Python.
#include "text/template/print.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/template/iterate.h"
#include "text/template/unicode.h"

static void put(struct render *render, const char *text) { text_put(render, bytes_of(text)); }

// Digits and decimal exponent of a finite number: d.ddd * 10^exponent, without trailing zeros.
static int shortest_digits(double number, char digits[32])
{
    char text[32];
    for (int precision = number < DBL_MIN ? 1 : 15; precision <= 17; precision++) { // 15 always survive; 17 suffice
        snprintf(text, sizeof text, "%.*e", precision - 1, number);
        if (strtod(text, NULL) == number)
            break;
    }
    int count = 0;
    char *c = text;
    for (; *c != 'e'; c++)
        if (*c != '.')
            digits[count++] = *c;
    while (count > 1 && digits[count - 1] == '0')
        count--;
    digits[count] = '\0';
    return atoi(c + 1);
}

void print_float(struct render *render, double number)
{
    enum { EXPONENT_FROM = 16, EXPONENT_BELOW = -4 };
    char digits[32];
    render_step(render, RENDER_STEPS_PER_NUMBER);
    if (!isfinite(number)) {
        put(render, isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
        return;
    }
    if (signbit(number))
        text_put_byte(render, '-');
    int exponent = shortest_digits(fabs(number), digits), count = (int)strlen(digits);
    if (exponent < EXPONENT_BELOW || exponent >= EXPONENT_FROM) {
        text_put_format(render, "%c%s%se%+03d", digits[0], count > 1 ? "." : "", digits + 1, exponent);
    } else if (exponent < 0) {
        text_put_format(render, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else {
        int whole = exponent + 1, given = count < whole ? count : whole;
        text_put_format(render, "%.*s%.*s.%s", given, digits, whole - given, "0000000000000000",
                        count > whole ? digits + whole : "0");
    }
}

static void put_escaped(struct render *render, uint32_t c)
{
    if (c <= 0xFF)
        text_put_format(render, "\\x%02" PRIx32, c);
    else if (c <= 0xFFFF)
        text_put_format(render, "\\u%04" PRIx32, c);
    else
        text_put_format(render, "\\U%08" PRIx32, c);
}

static void repr_string(struct render *render, struct bytes text)
{
    char quote = text.len && memchr(text.data, '\'', text.len) && !memchr(text.data, '"', text.len) ? '"' : '\'';
    render_step_characters(render, text.len * 2);
    text_put_byte(render, quote);
    for (size_t at = 0, length; at < text.len && !render->failed; at += length) {
        uint32_t c = unicode_first(bytes_from(text, at), &length);
        if (c == (uint32_t)quote || c == '\\')
            text_put_format(render, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            put(render, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (unicode_is_printable(c))
            text_put(render, (struct bytes){ text.data + at, length });
        else
            put_escaped(render, c);
    }
    text_put_byte(render, quote);
}

static void repr_items(struct render *render, struct value value, const char *open, const char *close)
{
    struct iterator *iterator = iterator_of(render, value);
    struct value item;
    const char *between = open;
    if (!iterator)
        return;
    while (iterator_next(render, iterator, &item)) {
        put(render, between);
        print_repr(render, item);
        between = ", ";
    }
    if (between == open)
        put(render, open);
    put(render, close);
}

static void repr_dict(struct render *render, const struct dict *dict)
{
    text_put_byte(render, '{');
    for (size_t i = 0; i < dict->count && render_step(render, 1); i++) {
        put(render, i ? ", " : "");
        print_repr(render, dict->entries[i].key);
        put(render, ": ");
        print_repr(render, dict->entries[i].value);
    }
    text_put_byte(render, '}');
}

static void repr_range(struct render *render, const struct range *range)
{
    text_put_format(render, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    if (range->step != 1)
        text_put_format(render, ", %" PRId64, range->step);
    text_put_byte(render, ')');
}

static void repr_string_value(struct render *render, struct value value)
{
    put(render, value.safe ? "Markup(" : "");
    repr_string(render, value.string);
    put(render, value.safe ? ")" : "");
}

static void repr_view(struct render *render, struct value view)
{
    static const char *const openings[] = {
        [VIEW_KEYS] = "dict_keys([",
        [VIEW_VALUES] = "dict_values([",
        [VIEW_ITEMS] = "dict_items([",
    };
    repr_items(render, view, openings[view.view], "])");
}

static void repr_within(struct render *render, struct value value)
{
    switch (value.type) {
    case VALUE_UNDEFINED: put(render, "Undefined"); break;
    case VALUE_NONE: put(render, "None"); break;
    case VALUE_BOOL: put(render, value.truth ? "True" : "False"); break;
    case VALUE_INT: text_put_format(render, "%" PRId64, value.integer); break;
    case VALUE_FLOAT: print_float(render, value.number); break;
    case VALUE_STRING: repr_string_value(render, value); break;
    case VALUE_LIST: repr_items(render, value, "[", "]"); break;
    case VALUE_TUPLE: repr_items(render, value, "(", value.list->count == 1 ? ",)" : ")"); break;
    case VALUE_DICT: repr_dict(render, value.dict); break;
    case VALUE_VIEW: repr_view(render, value); break;
    case VALUE_RANGE: repr_range(render, value.range); break;
    case VALUE_NAMESPACE:
        put(render, "<Namespace ");
        repr_dict(render, value.dict);
        text_put_byte(render, '>');
        break;
    default: text_put_format(render, "<%s>", value_kind(value)); break;
    }
}

void print_repr(struct render *render, struct value value)
{
    if (!render_enter(render))
        return;
    repr_within(render, value);
    render_leave(render);
}

void print_value(struct render *render, struct value value)
{
    if (value.type == VALUE_STRING)
        text_put(render, value.string);
    else if (value.type != VALUE_UNDEFINED)
        print_repr(render, value);
}
