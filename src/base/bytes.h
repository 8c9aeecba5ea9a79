// SPDX-License-Identifier: Apache-2.0
// base/bytes.h: a byte slice: a borrowed pointer and a length. Parsers take slices, so a fuzzer can call each of them.
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const char *data;
    size_t len;
};

static inline struct bytes bytes_of(const char *text) { return (struct bytes){ text, strlen(text) }; }

static inline struct bytes bytes_from(struct bytes text, size_t at) // the rest from byte `at` on
{
    return (struct bytes){ text.data + at, text.len - at };
}

static inline bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool bytes_start_with(struct bytes text, struct bytes prefix)
{
    return text.len >= prefix.len && (prefix.len == 0 || memcmp(text.data, prefix.data, prefix.len) == 0);
}

static inline bool bytes_end_with(struct bytes text, struct bytes end)
{
    return text.len >= end.len && (end.len == 0 || memcmp(text.data + text.len - end.len, end.data, end.len) == 0);
}

static inline bool bytes_hold(struct bytes text, const char *part)
{
    return text.len && memmem(text.data, text.len, part, strlen(part));
}

static inline int bytes_order(struct bytes a, struct bytes b) // as memcmp; what begins another comes before it
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common ? memcmp(a.data, b.data, common) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

// White space of JSON, and of markers and names.
static inline bool bytes_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Takes the next word of a list, which has single blanks between them; false: none is left. The list may be NULL.
static inline bool bytes_next_word(const char **words, struct bytes *word)
{
    *word = (struct bytes){ *words, *words ? strcspn(*words, " ") : 0 };
    if (*words)
        *words += word->len + ((*words)[word->len] == ' ');
    return word->len;
}

static inline bool bytes_is_word(const char *words, struct bytes name) // of such a list
{
    for (struct bytes word; bytes_next_word(&words, &word);)
        if (bytes_equal(word, name))
            return true;
    return false;
}

// The value of a hexadecimal digit, or -1 for any other character.
static inline int bytes_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

#endif
