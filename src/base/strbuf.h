// SPDX-License-Identifier: Apache-2.0
// base/strbuf.h: a growable string. A zeroed struct is an empty string; data is NUL-terminated once something was
// added.
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include "base/bytes.h"

struct strbuf {
    char *data;
    size_t len, cap;
};

void strbuf_add(struct strbuf *buf, const char *data, size_t len);
void strbuf_add_text(struct strbuf *buf, const char *text);
void strbuf_add_byte(struct strbuf *buf, char byte);
void strbuf_add_format(struct strbuf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void strbuf_add_codepoint(struct strbuf *buf, uint32_t codepoint); // as UTF-8
void strbuf_add_clean(struct strbuf *buf, struct bytes text);      // each byte that is not UTF-8 becomes U+FFFD
void strbuf_cut(struct strbuf *buf, size_t len);                   // to its first bytes
const char *strbuf_text(const struct strbuf *buf);                 // "" when empty
void strbuf_free(struct strbuf *buf);

static inline struct bytes strbuf_bytes(const struct strbuf *buf) { return (struct bytes){ buf->data, buf->len }; }

#endif
