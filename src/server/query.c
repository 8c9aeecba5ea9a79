// SPDX-License-Identifier: Apache-2.0
#include "server/query.h"

static void add_unescaped(struct strbuf *out, struct bytes text, bool plus_is_space)
{
    for (size_t i = 0; i < text.len; i++) {
        bool escaped = text.data[i] == '%' && i + 2 < text.len && bytes_hex_digit(text.data[i + 1]) >= 0
            && bytes_hex_digit(text.data[i + 2]) >= 0;
        int code = escaped ? bytes_hex_digit(text.data[i + 1]) * 16 + bytes_hex_digit(text.data[i + 2]) : text.data[i];
        strbuf_add_byte(out, !escaped && plus_is_space && code == '+' ? ' ' : (char)code);
        i += escaped ? 2 : 0;
    }
}

void query_add_unescaped(struct strbuf *out, struct bytes text) { add_unescaped(out, text, false); }

static struct bytes take_until(struct bytes *text, char end)
{
    struct bytes taken = { text->data, 0 };
    while (taken.len < text->len && text->data[taken.len] != end)
        taken.len++;
    *text = bytes_from(*text, taken.len < text->len ? taken.len + 1 : taken.len);
    return taken;
}

bool query_next(struct bytes *query, struct strbuf *name, struct strbuf *value)
{
    struct bytes pair = { 0 };
    while (!pair.len && query->len)
        pair = take_until(query, '&');
    if (!pair.len)
        return false;
    struct bytes key = take_until(&pair, '=');
    name->len = value->len = 0;
    add_unescaped(name, key, true);
    add_unescaped(value, pair, true);
    return true;
}
