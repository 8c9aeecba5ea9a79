// SPDX-License-Identifier: Apache-2.0
// text/template/unicode.h: Python's str by code points. Every string here is valid UTF-8.
#ifndef TEXT_TEMPLATE_UNICODE_H
#define TEXT_TEMPLATE_UNICODE_H

#include "base/strbuf.h"

size_t unicode_offset(struct bytes text, size_t index);    // byte where code point `index` starts, or text.len
uint32_t unicode_first(struct bytes text, size_t *length); // the first code point and its bytes; text is not empty
uint32_t unicode_last(struct bytes text, size_t *length);  // the last one
int shown_length(struct bytes text);                       // of a name in a sentence, for %.*s: long ones are cut

bool unicode_is_space(uint32_t c);
bool unicode_is_line_end(uint32_t c); // where splitlines cuts
bool unicode_is_word(uint32_t c);     // \w
bool unicode_is_printable(uint32_t c);
bool unicode_is_upper(uint32_t c);
bool unicode_is_lower(uint32_t c);
bool unicode_is_title(uint32_t c); // a digraph with only its first letter in upper case

static inline bool unicode_is_cased(uint32_t c)
{
    return unicode_is_upper(c) || unicode_is_lower(c) || unicode_is_title(c);
}

// Each appends the converted text. One code point may become up to three.
void unicode_upper(struct strbuf *out, struct bytes text);
void unicode_lower(struct strbuf *out, struct bytes text);
void unicode_title(struct strbuf *out, struct bytes text);      // a capital after everything that has no case
void unicode_capitalize(struct strbuf *out, struct bytes text); // a capital at the start, the rest in lower case

struct bytes unicode_strip_left(struct bytes text); // white space
struct bytes unicode_strip_right(struct bytes text);

#endif
