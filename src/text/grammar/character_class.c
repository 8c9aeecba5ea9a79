// SPDX-License-Identifier: Apache-2.0
// Ranges of code points as byte sequences of UTF-8, in a JSON string or outside.
#include "text/grammar/character_class.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

// ---- code points as bytes ----

static void add_text(struct nfa *nfa, uint32_t from, uint32_t to, const char *text)
{
    for (; text[1]; text++) {
        uint32_t next = nfa_state(nfa);
        nfa_bytes(nfa, from, next, (uint8_t)*text, (uint8_t)*text);
        from = next;
    }
    nfa_bytes(nfa, from, to, (uint8_t)*text, (uint8_t)*text);
}

// The characters from `low` to `high`, which have equally many bytes.
static void add_between(struct nfa *nfa, uint32_t from, uint32_t to, const uint8_t *low, const uint8_t *high,
                        size_t len)
{
    static const uint8_t lowest[UTF8_BYTES_MAX] = { 0x80, 0x80, 0x80, 0x80 };
    static const uint8_t highest[UTF8_BYTES_MAX] = { 0xBF, 0xBF, 0xBF, 0xBF };
    uint8_t first = low[0], last = high[0];
    if (len == 1) {
        nfa_bytes(nfa, from, to, first, last);
        return;
    }
    if (first == last) {
        uint32_t next = nfa_state(nfa);
        nfa_bytes(nfa, from, next, first, first);
        add_between(nfa, next, to, low + 1, high + 1, len - 1);
        return;
    }
    // Only part of the characters that begin with the first or the last byte are in the range; of the rest, all are.
    if (memcmp(low + 1, lowest, len - 1) != 0) {
        uint8_t end[UTF8_BYTES_MAX] = { first++, 0xBF, 0xBF, 0xBF };
        add_between(nfa, from, to, low, end, len);
    }
    if (memcmp(high + 1, highest, len - 1) != 0) {
        uint8_t begin[UTF8_BYTES_MAX] = { last--, 0x80, 0x80, 0x80 };
        add_between(nfa, from, to, begin, high, len);
    }
    if (first <= last) {
        uint32_t next = nfa_state(nfa);
        nfa_bytes(nfa, from, next, first, last);
        add_between(nfa, next, to, lowest, highest, len - 1);
    }
}

static void add_beyond_ascii(struct nfa *nfa, uint32_t from, uint32_t to, struct range range)
{
    static const struct range lengths[] = {
        { 0x80, 0x7FF }, { 0x800, 0xD7FF }, { 0xE000, 0xFFFF }, { 0x10000, 0x10FFFF }
    }; // of equally many bytes; no surrogates
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t low = range.low > lengths[i].low ? range.low : lengths[i].low;
        uint32_t high = range.high < lengths[i].high ? range.high : lengths[i].high;
        char first[UTF8_BYTES_MAX], last[UTF8_BYTES_MAX];
        if (low > high)
            continue;
        size_t len = utf8_encode(low, first);
        utf8_encode(high, last);
        add_between(nfa, from, to, (uint8_t *)first, (uint8_t *)last, len);
    }
}

// A character that JSON escapes. NUL is left out, because readers of JSON disagree about it.
static void add_escaped(struct nfa *nfa, uint32_t from, uint32_t to, uint32_t c)
{
    static const char short_form[] = "\"\"\\\\\bb\ff\nn\rr\tt"; // a character, and the letter behind its backslash
    char text[8];
    for (const char *pair = short_form; *pair; pair += 2)
        if ((uint32_t)*pair == c) {
            add_text(nfa, from, to, (char[]){ '\\', pair[1], '\0' });
            return;
        }
    snprintf(text, sizeof text, "\\u%04x", c);
    if (c)
        add_text(nfa, from, to, text);
}

static void add_ascii_of_string(struct nfa *nfa, uint32_t from, uint32_t to, struct range range)
{
    static const struct {
        struct range range;
        bool escaped;
    } parts[] = {
        { { 0, ' ' - 1 }, true },         { { ' ', '"' - 1 }, false }, { { '"', '"' }, true },
        { { '"' + 1, '\\' - 1 }, false }, { { '\\', '\\' }, true },    { { '\\' + 1, 0x7F }, false },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint32_t low = range.low > parts[i].range.low ? range.low : parts[i].range.low;
        uint32_t high = range.high < parts[i].range.high ? range.high : parts[i].range.high;
        if (low <= high && !parts[i].escaped)
            nfa_bytes(nfa, from, to, (uint8_t)low, (uint8_t)high);
        for (uint32_t c = low; c <= high && parts[i].escaped; c++)
            add_escaped(nfa, from, to, c);
    }
}

void class_to_nfa(const struct range *ranges, size_t count, bool in_string, struct nfa *nfa, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < count; i++) {
        struct range range = ranges[i];
        if (in_string)
            add_ascii_of_string(nfa, from, to, range);
        else if (range.low <= ASCII_MAX)
            nfa_bytes(nfa, from, to, (uint8_t)range.low, (uint8_t)(range.high < ASCII_MAX ? range.high : ASCII_MAX));
        add_beyond_ascii(nfa, from, to, range);
    }
}

// ---- classes ----

bool class_add(struct character_class *class, uint32_t low, uint32_t high)
{
    if (class->count == CLASS_RANGES_MAX)
        return false;
    class->ranges[class->count++] = (struct range){ low, high };
    return true;
}

static int compare_ranges(const void *a, const void *b)
{
    uint32_t x = ((const struct range *)a)->low, y = ((const struct range *)b)->low;
    return (x > y) - (x < y);
}

size_t class_join(struct range *ranges, size_t count)
{
    size_t kept = 0;
    if (count)
        qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < count; i++) {
        if (kept && ranges[i].low <= ranges[kept - 1].high + 1)
            ranges[kept - 1].high = ranges[i].high > ranges[kept - 1].high ? ranges[i].high : ranges[kept - 1].high;
        else
            ranges[kept++] = ranges[i];
    }
    return kept;
}

bool class_negate(struct character_class *class, uint32_t first, uint32_t last)
{
    struct character_class all = *class;
    all.count = class_join(all.ranges, all.count);
    class->count = 0;
    for (size_t i = 0; i < all.count && first <= last; i++) {
        uint32_t end = all.ranges[i].low > last ? last + 1 : all.ranges[i].low;
        if (end > first && !class_add(class, first, end - 1))
            return false;
        first = all.ranges[i].high >= first ? all.ranges[i].high + 1 : first;
    }
    return first > last || class_add(class, first, last);
}

bool class_add_letters(struct character_class *class, char letter, uint32_t first, uint32_t last)
{
    static const struct {
        char letter;
        struct range ranges[4];
    } rows[] = {
        { 'd', { { '0', '9' } } },
        { 'w', { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } } },
        { 's', { { '\t', '\r' }, { ' ', ' ' } } },
    };
    struct character_class letters = { .count = 0 };
    bool ok = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < 4 && rows[i].ranges[k].high && rows[i].letter == (letter | 0x20); k++)
            class_add(&letters, rows[i].ranges[k].low, rows[i].ranges[k].high);
    if (!letters.count)
        return false;
    if (letter < 'a')
        class_negate(&letters, first, last);
    for (size_t i = 0; i < letters.count && ok; i++)
        ok = class_add(class, letters.ranges[i].low, letters.ranges[i].high);
    class->letters = true;
    return ok;
}
