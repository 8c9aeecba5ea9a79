// SPDX-License-Identifier: Apache-2.0
// Python's str by code points: classification and case mapping, on utf8proc.
#include "text/template/unicode.h"

#include <assert.h>
#include <utf8proc.h>

#include "base/utf8.h"

enum { CASE_EXPANSION_MAX = 4 }; // code points that one may fold into

enum { // letters with rules of their own
    CAPITAL_I_DOT = 0x130,
    COMBINING_DOT = 0x307,
    COMBINING_IOTA = 0x345,
    CAPITAL_SIGMA = 0x3A3,
    SMALL_IOTA = 0x3B9,
    FINAL_SIGMA = 0x3C2,
    SMALL_SIGMA = 0x3C3,
};

struct range {
    uint32_t first, last;
};

static bool in_ranges(const struct range *ranges, size_t count, uint32_t c)
{
    for (size_t i = 0; i < count && ranges[i].first <= c; i++)
        if (c <= ranges[i].last)
            return true;
    return false;
}

size_t unicode_offset(struct bytes text, size_t index)
{
    for (size_t i = 0; i < text.len; i++)
        if (((unsigned char)text.data[i] & 0xC0) != 0x80 && index-- == 0)
            return i;
    return text.len;
}

uint32_t unicode_first(struct bytes text, size_t *length)
{
    uint32_t c = 0;
    *length = utf8_decode(text, &c);
    assert(*length);
    return c;
}

uint32_t unicode_last(struct bytes text, size_t *length)
{
    size_t start = text.len - 1;
    while (start > 0 && ((unsigned char)text.data[start] & 0xC0) == 0x80)
        start--;
    return unicode_first(bytes_from(text, start), length);
}

int shown_length(struct bytes text)
{
    size_t length = text.len < 100 ? text.len : 100;
    while (length && length < text.len && ((unsigned char)text.data[length] & 0xC0) == 0x80)
        length--;
    return (int)length;
}

bool unicode_is_space(uint32_t c)
{
    static const struct range spaces[] = { { 0x09, 0x0D },     { 0x1C, 0x20 },     { 0x85, 0x85 },
                                           { 0xA0, 0xA0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200A },
                                           { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F },
                                           { 0x3000, 0x3000 } };
    return in_ranges(spaces, sizeof spaces / sizeof *spaces, c);
}

bool unicode_is_line_end(uint32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static uint32_t category_bit(uint32_t c) { return 1u << utf8proc_category((utf8proc_int32_t)c); }

#define CATEGORY(name) (1u << UTF8PROC_CATEGORY_##name)

bool unicode_is_word(uint32_t c)
{
    uint32_t letters = CATEGORY(LU) | CATEGORY(LL) | CATEGORY(LT) | CATEGORY(LM) | CATEGORY(LO);
    return c == '_' || (category_bit(c) & (letters | CATEGORY(ND) | CATEGORY(NL) | CATEGORY(NO)));
}

bool unicode_is_printable(uint32_t c)
{
    uint32_t hidden = CATEGORY(CC) | CATEGORY(CF) | CATEGORY(CS) | CATEGORY(CO) | CATEGORY(CN) | CATEGORY(ZL)
        | CATEGORY(ZP) | CATEGORY(ZS);
    return c == ' ' || !(category_bit(c) & hidden);
}

bool unicode_is_upper(uint32_t c) { return category_bit(c) & CATEGORY(LU); }
bool unicode_is_lower(uint32_t c) { return category_bit(c) & CATEGORY(LL); }
bool unicode_is_title(uint32_t c) { return category_bit(c) & CATEGORY(LT); }

static size_t fold(uint32_t c, utf8proc_int32_t out[CASE_EXPANSION_MAX])
{
    int boundary = UTF8PROC_BOUNDCLASS_START;
    utf8proc_int32_t codepoint = (utf8proc_int32_t)c;
    utf8proc_ssize_t count = utf8proc_decompose_char(codepoint, out, CASE_EXPANSION_MAX, UTF8PROC_CASEFOLD, &boundary);
    assert(count > 0 && count <= CASE_EXPANSION_MAX);
    return (size_t)count;
}

// A letter whose capital takes several code points folds into as many small ones; capitals of those are the answer.
static void add_upper(struct strbuf *out, uint32_t c)
{
    utf8proc_int32_t small[CASE_EXPANSION_MAX];
    size_t count = c < 0x80 || unicode_is_upper(c) ? 1 : fold(c, small);
    if (count == 1)
        strbuf_add_codepoint(out, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
    else
        for (size_t i = 0; i < count; i++)
            strbuf_add_codepoint(out, (uint32_t)utf8proc_toupper(small[i]));
}

static void add_title(struct strbuf *out, uint32_t c)
{
    utf8proc_int32_t small[CASE_EXPANSION_MAX];
    utf8proc_int32_t simple = utf8proc_totitle((utf8proc_int32_t)c);
    size_t count = unicode_is_upper(c) || unicode_is_title(c) ? 1 : fold(c, small);
    if (count == 1 || ((uint32_t)simple != c && unicode_is_title((uint32_t)simple))) {
        strbuf_add_codepoint(out, (uint32_t)simple);
        return;
    }
    utf8proc_int32_t first = utf8proc_toupper(small[0]);
    strbuf_add_codepoint(out, (uint32_t)first);
    for (size_t i = 1; i < count; i++) { // an iota stays below the letter; a capital follows what has none
        utf8proc_int32_t rest = first == small[0] ? utf8proc_toupper(small[i]) : small[i];
        strbuf_add_codepoint(out, rest == SMALL_IOTA ? COMBINING_IOTA : (uint32_t)rest);
    }
}

// Skipped when looking for the letters around a sigma.
static bool is_case_ignorable(uint32_t c)
{
    uint32_t ignorable = CATEGORY(MN) | CATEGORY(ME) | CATEGORY(CF) | CATEGORY(LM) | CATEGORY(SK);
    return (category_bit(c) & ignorable) || c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
}

static bool ends_cased(struct bytes text)
{
    size_t length;
    for (; text.len; text.len -= length) {
        uint32_t c = unicode_last(text, &length);
        if (!is_case_ignorable(c))
            return unicode_is_cased(c);
    }
    return false;
}

static bool starts_cased(struct bytes text)
{
    size_t length;
    for (; text.len; text = bytes_from(text, length)) {
        uint32_t c = unicode_first(text, &length);
        if (!is_case_ignorable(c))
            return unicode_is_cased(c);
    }
    return false;
}

// The code point at `at` in lower case: a sigma looks at its neighbours.
static void add_lower(struct strbuf *out, struct bytes text, size_t at, uint32_t c)
{
    if (c == CAPITAL_SIGMA) {
        struct bytes before = { text.data, at }, after = { text.data + at + 2, text.len - at - 2 };
        strbuf_add_codepoint(out, ends_cased(before) && !starts_cased(after) ? FINAL_SIGMA : SMALL_SIGMA);
        return;
    }
    strbuf_add_codepoint(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
    if (c == CAPITAL_I_DOT)
        strbuf_add_codepoint(out, COMBINING_DOT);
}

#define EACH_CODEPOINT(text, at, length, c)                                                                          \
    for (size_t at = 0, length = 0;                                                                                  \
         at < (text).len && (c = unicode_first((struct bytes){ (text).data + at, (text).len - at }, &length), true); \
         at += length)

void unicode_upper(struct strbuf *out, struct bytes text)
{
    uint32_t c;
    EACH_CODEPOINT(text, at, length, c)
    add_upper(out, c);
}

void unicode_lower(struct strbuf *out, struct bytes text)
{
    uint32_t c;
    EACH_CODEPOINT(text, at, length, c)
    add_lower(out, text, at, c);
}

void unicode_title(struct strbuf *out, struct bytes text)
{
    uint32_t c;
    bool inside = false;
    EACH_CODEPOINT(text, at, length, c)
    {
        if (inside)
            add_lower(out, text, at, c);
        else
            add_title(out, c);
        inside = unicode_is_cased(c);
    }
}

void unicode_capitalize(struct strbuf *out, struct bytes text)
{
    uint32_t c;
    EACH_CODEPOINT(text, at, length, c)
    {
        if (at)
            add_lower(out, text, at, c);
        else
            add_title(out, c);
    }
}

struct bytes unicode_strip_left(struct bytes text)
{
    size_t length;
    while (text.len && unicode_is_space(unicode_first(text, &length)))
        text = bytes_from(text, length);
    return text;
}

struct bytes unicode_strip_right(struct bytes text)
{
    size_t length;
    while (text.len && unicode_is_space(unicode_last(text, &length)))
        text.len -= length;
    return text;
}
