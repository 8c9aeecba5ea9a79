// SPDX-License-Identifier: Apache-2.0
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/utf8.h"

static void reserve(struct strbuf *buf, size_t more)
{
    size_t need = buf->len + more + 1;
    if (need <= buf->cap)
        return;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < need)
        cap *= 2;
    buf->data = memory_grow(buf->data, cap, 1);
    buf->cap = cap;
}

void strbuf_add(struct strbuf *buf, const char *data, size_t len)
{
    reserve(buf, len);
    if (len)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void strbuf_cut(struct strbuf *buf, size_t len)
{
    buf->len = len;
    if (buf->data)
        buf->data[len] = '\0';
}

void strbuf_add_text(struct strbuf *buf, const char *text) { strbuf_add(buf, text, strlen(text)); }

void strbuf_add_byte(struct strbuf *buf, char byte) { strbuf_add(buf, &byte, 1); }

void strbuf_add_format(struct strbuf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) // as far as printf can fail: it could not allocate
        memory_exhausted(1, strlen(format));
    reserve(buf, (size_t)length);
    vsnprintf(buf->data + buf->len, (size_t)length + 1, format, again);
    va_end(again);
    buf->len += (size_t)length;
}

void strbuf_add_codepoint(struct strbuf *buf, uint32_t codepoint)
{
    char text[UTF8_BYTES_MAX];
    strbuf_add(buf, text, utf8_encode(codepoint, text));
}

void strbuf_add_clean(struct strbuf *buf, struct bytes text)
{
    uint32_t codepoint;
    for (size_t at = 0, length; at < text.len; at += length ? length : 1) {
        length = utf8_decode((struct bytes){ text.data + at, text.len - at }, &codepoint);
        strbuf_add_codepoint(buf, length ? codepoint : UTF8_REPLACEMENT);
    }
}

const char *strbuf_text(const struct strbuf *buf) { return buf->data ? buf->data : ""; }

void strbuf_free(struct strbuf *buf)
{
    free(buf->data);
    *buf = (struct strbuf){ 0 };
}
