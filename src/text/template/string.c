// SPDX-License-Identifier: Apache-2.0
// text/template/string.c: str(), int() and float() of Python, HTML escapes of Markup, and appending in amortised linear
// time.
#include <stdlib.h>

#include "text/template/builtin.h"
#include "text/template/print.h"
#include "text/template/unicode.h"

struct value string_of(struct render *render, struct value value)
{
    if (value.type == VALUE_STRING)
        return value;
    size_t mark = text_mark(render);
    print_value(render, value);
    return text_take(render, mark);
}

static const char *entity_of(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '\'': return "&#39;";
    case '"': return "&#34;";
    default: return NULL;
    }
}

struct value escape_html(struct render *render, struct value value)
{
    struct value text = string_of(render, value);
    if (text.safe)
        return text;
    struct bytes rest = text.string;
    size_t mark = text_mark(render), plain = 0;
    render_step_characters(render, rest.len);
    while (plain < rest.len && !render->failed) {
        const char *entity = entity_of(rest.data[plain]);
        if (!entity) {
            plain++;
            continue;
        }
        text_put(render, (struct bytes){ rest.data, plain });
        text_put(render, bytes_of(entity));
        rest = bytes_from(rest, plain + 1);
        plain = 0;
    }
    text_put(render, rest);
    text = text_take(render, mark);
    text.safe = true;
    return text;
}

// Concatenation in amortised linear time: the longest string that was appended to has spare room behind it. Older,
// shorter strings share its beginning, which never changes.
struct value string_concat(struct render *render, struct value a, struct value b)
{
    bool safe = a.safe || b.safe;
    if (safe) {
        a = escape_html(render, a);
        b = escape_html(render, b);
    }
    struct bytes left = a.string, right = b.string;
    size_t total = left.len + right.len;
    struct value result = { .type = VALUE_STRING, .safe = safe };
    if (left.len && left.data + left.len == render->grow_end && right.len <= render->grow_room) {
        render_step_bytes(render, right.len);
        result.string = (struct bytes){ left.data, total };
        render->grow_room -= right.len;
    } else {
        bool longest = total > render->grow_length;
        char *data = render_room(render, longest ? total * 2 : total, 1);
        if (!data)
            return value_text("");
        memcpy(data, left.data, left.len);
        result.string = (struct bytes){ data, total };
        if (!longest) {
            memcpy(data + left.len, right.data, right.len);
            return result;
        }
        render->grow_end = data + left.len;
        render->grow_room = total;
    }
    memcpy(render->grow_end, right.data, right.len);
    render->grow_end += right.len;
    render->grow_length = total;
    return result;
}

static struct bytes stripped(struct bytes text) { return unicode_strip_left(unicode_strip_right(text)); }

static int digit_value(char c) { return c >= '0' && c <= '9' ? c - '0' : 10; }

bool string_to_int(struct bytes text, int64_t *out, bool *too_big)
{
    text = stripped(text);
    size_t at = text.len && (text.data[0] == '-' || text.data[0] == '+');
    bool negative = at && text.data[0] == '-';
    *out = 0;
    *too_big = false;
    bool after_digit = false;
    if (at == text.len)
        return false;
    for (; at < text.len; at++) {
        if (text.data[at] == '_' && after_digit && at + 1 < text.len) {
            after_digit = false;
            continue;
        }
        int digit = digit_value(text.data[at]);
        if (digit > 9)
            return false;
        digit = negative ? -digit : digit;
        *too_big |= __builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, digit, out);
        after_digit = true;
    }
    return after_digit;
}

bool string_to_float(struct bytes text, double *out)
{
    char plain[512]; // longer ones are not numbers anyone writes
    size_t used = 0;
    text = stripped(text);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool between = i && i + 1 < text.len;
        if (c == '_' && between && digit_value(text.data[i - 1]) < 10 && digit_value(text.data[i + 1]) < 10)
            continue;
        if (!c || c == '_' || (c | 0x20) == 'x' || c == '(' || used + 1 == sizeof plain)
            return false;
        plain[used++] = c;
    }
    plain[used] = '\0';
    char *end;
    *out = strtod(plain, &end);
    return used && end == plain + used && !unicode_is_space((unsigned char)plain[0]);
}
