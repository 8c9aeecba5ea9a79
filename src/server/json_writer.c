// SPDX-License-Identifier: Apache-2.0
#include "server/json_writer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

// ---- text ---------------------------------------------------------------------------------------------------------

static const char *escape_of(unsigned char c)
{
    static const char *const escapes[256] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t",
    };
    return escapes[c];
}

static bool is_plain(unsigned char c) { return c >= ' ' && c < 0x80 && c != '"' && c != '\\'; }

static void add_escaped(struct strbuf *out, unsigned char c)
{
    if (escape_of(c))
        strbuf_add_text(out, escape_of(c));
    else
        strbuf_add_format(out, "\\u%04X", c);
}

void json_write_text_inside(struct strbuf *out, struct bytes text)
{
    for (size_t at = 0; at < text.len;) {
        size_t plain = at;
        uint32_t codepoint;
        while (plain < text.len && is_plain((unsigned char)text.data[plain]))
            plain++;
        strbuf_add(out, text.data + at, plain - at);
        at = plain;
        if (at == text.len)
            break;
        struct bytes rest = { text.data + at, text.len - at };
        size_t length = (unsigned char)rest.data[0] < 0x80 ? 1 : utf8_decode(rest, &codepoint);
        if ((unsigned char)rest.data[0] < 0x80)
            add_escaped(out, (unsigned char)rest.data[0]);
        else
            strbuf_add_clean(out, (struct bytes){ rest.data, length ? length : 1 });
        at += length ? length : 1;
    }
}

void json_write_text(struct strbuf *out, struct bytes text)
{
    strbuf_add_byte(out, '"');
    json_write_text_inside(out, text);
    strbuf_add_byte(out, '"');
}

size_t json_text_cut(struct bytes text, size_t limit)
{
    size_t end = text.len < limit ? text.len : limit;
    for (int i = 1; i < UTF8_BYTES_MAX && end > 1 && end < text.len; i++)
        end -= ((unsigned char)text.data[end] & 0xC0) == 0x80;
    return end;
}

// ---- numbers ------------------------------------------------------------------------------------------------------

// %.9g is enough for every float. A whole number gets ".0", as it is a real; exponents lose their plus and their zeros.
void json_write_logprob(struct strbuf *out, float logprob)
{
    enum { LOWEST = -9999, FLOAT_DIGITS = 9 };
    char number[32];
    snprintf(number, sizeof number, "%.*g", FLOAT_DIGITS, logprob > LOWEST ? (double)logprob : (double)LOWEST);
    char *exponent = strchr(number, 'e');
    if (!exponent) {
        strbuf_add_text(out, number);
        strbuf_add_text(out, strchr(number, '.') ? "" : ".0");
        return;
    }
    strbuf_add(out, number, (size_t)(exponent - number) + 1);
    json_write(out, "%d", atoi(exponent + 1));
}

// ---- patterns -----------------------------------------------------------------------------------------------------

void json_write(struct strbuf *out, const char *pattern, ...)
{
    va_list args;
    va_start(args, pattern);
    for (const char *next; *(next = strchrnul(pattern, '%')); pattern = next + 2) {
        strbuf_add(out, pattern, (size_t)(next - pattern));
        switch (next[1]) {
        case 's': strbuf_add_text(out, va_arg(args, const char *)); break;
        case 'q': json_write_text(out, bytes_of(va_arg(args, const char *))); break;
        case 'b': json_write_text(out, va_arg(args, struct bytes)); break;
        case 'd': strbuf_add_format(out, "%d", va_arg(args, int)); break;
        case 'z': strbuf_add_format(out, "%zu", va_arg(args, size_t)); break;
        case 'l': strbuf_add_format(out, "%lld", va_arg(args, long long)); break;
        default: assert(!"a letter of patterns");
        }
    }
    va_end(args);
    strbuf_add_text(out, pattern);
}
