// SPDX-License-Identifier: Apache-2.0
// The pattern is read and laid out as an automaton at once; what is counted is read again for each copy.
#include "text/grammar/pattern.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

struct range {
    uint32_t low, high;
};

struct class {
    struct range ranges[PATTERN_RANGES_MAX];
    size_t count;
    bool letters; // has \d, \w or \s in it, on which the readers of regexes agree in ASCII alone
};

struct parser {
    struct bytes text;
    size_t at;
    int depth;
    struct nfa nfa;
    struct class class; // being read
    bool in_string;     // PATTERN_STRING, PATTERN_WIDE: characters are escaped as JSON does
    bool wide;          // PATTERN_WIDE
    bool anchored;      // every alternative begins where the text does
    bool *loose;        // NULL: assertions are not passed over
    struct error *err;
};

static const uint32_t codepoint_max = 0x10FFFF, ascii_max = 0x7F;

// ---- characters as the bytes that stand for them ----

static void add_text(struct nfa *nfa, uint32_t from, uint32_t to, const char *text)
{
    for (; text[1]; text++) {
        uint32_t next = nfa_state(nfa);
        nfa_bytes(nfa, from, next, (uint8_t)*text, (uint8_t)*text);
        from = next;
    }
    nfa_bytes(nfa, from, to, (uint8_t)*text, (uint8_t)*text);
}

// The characters between two of equally many bytes.
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
    // The characters of the first byte and of the last are cut short; those in between are whole.
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

// A character that JSON escapes; NUL is left out.
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

static void add_class(struct parser *parser, uint32_t from, uint32_t to)
{
    struct nfa *nfa = &parser->nfa;
    for (size_t i = 0; i < parser->class.count; i++) {
        struct range range = parser->class.ranges[i];
        if (parser->in_string)
            add_ascii_of_string(nfa, from, to, range);
        else if (range.low <= ascii_max)
            nfa_bytes(nfa, from, to, (uint8_t)range.low, (uint8_t)(range.high < ascii_max ? range.high : ascii_max));
        add_beyond_ascii(nfa, from, to, range);
    }
}

// ---- classes ----

static bool class_add(struct parser *parser, uint32_t low, uint32_t high)
{
    struct class *class = &parser->class;
    if (class->count == PATTERN_RANGES_MAX)
        return fail(parser->err, "a class of more than %d ranges", PATTERN_RANGES_MAX);
    class->ranges[class->count++] = (struct range){ low, high };
    return true;
}

static int compare_ranges(const void *a, const void *b)
{
    uint32_t x = ((const struct range *)a)->low, y = ((const struct range *)b)->low;
    return (x > y) - (x < y);
}

static bool class_negate(struct parser *parser)
{
    struct class *class = &parser->class, all = *class;
    uint32_t next = parser->wide ? 1 : ' '; // control characters are in no negated class
    uint32_t end = all.letters ? ascii_max : codepoint_max;
    qsort(all.ranges, all.count, sizeof *all.ranges, compare_ranges);
    class->count = 0;
    for (size_t i = 0; i < all.count; i++) {
        if (all.ranges[i].low > next && !class_add(parser, next, all.ranges[i].low - 1))
            return false;
        if (all.ranges[i].high >= next)
            next = all.ranges[i].high + 1;
    }
    return (next > end || class_add(parser, next, end))
        && (!all.letters || !parser->wide || class_add(parser, ascii_max + 1, codepoint_max));
}

// \d \w \s and their opposites. False: it is none of them.
static bool class_add_letter(struct parser *parser, char letter)
{
    static const struct {
        char letter;
        struct range ranges[5];
    } rows[] = {
        { 'd', { { '0', '9' } } },
        { 'D', { { ' ', '/' }, { ':', '~' } } },
        { 'w', { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } } },
        { 'W', { { ' ', '/' }, { ':', '@' }, { '[', '^' }, { '`', '`' }, { '{', '~' } } },
        { 's', { { '\t', '\r' }, { ' ', ' ' } } },
        { 'S', { { '!', '~' } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].letter == letter) {
            for (size_t k = 0; k < 5 && rows[i].ranges[k].high; k++)
                class_add(parser, rows[i].ranges[k].low, rows[i].ranges[k].high);
            if (parser->wide)
                class_add(parser, ascii_max + 1, codepoint_max);
            if (parser->wide && letter < 'a') // an opposite
                class_add(parser, 1, ' '), class_add(parser, ascii_max, ascii_max);
            return parser->class.letters = true;
        }
    return false;
}

// ---- reading ----

static bool at_end(const struct parser *parser) { return parser->at >= parser->text.len; }

static char peek(const struct parser *parser) { return at_end(parser) ? '\0' : parser->text.data[parser->at]; }

static bool take(struct parser *parser, const char *text)
{
    struct bytes rest = { parser->text.data + parser->at, parser->text.len - parser->at };
    if (!bytes_start_with(rest, bytes_of(text)))
        return false;
    parser->at += strlen(text);
    return true;
}

static bool read_hex(struct parser *parser, size_t digits, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < digits; i++, parser->at++) {
        int digit = at_end(parser) ? -1 : bytes_hex_digit(peek(parser));
        if (digit < 0)
            return fail(parser->err, "\\x and \\u ask for %zu hexadecimal digits", digits);
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

// Behind a backslash: one character.
static bool read_escape(struct parser *parser, uint32_t *out)
{
    static const char controls[] = "n\nr\rt\tf\fv\v";
    char letter = peek(parser);
    if (at_end(parser))
        return fail(parser->err, "it ends in a backslash");
    for (const char *pair = controls; *pair; pair += 2)
        if (*pair == letter)
            return parser->at++, *out = (uint32_t)pair[1], true;
    if (letter == 'x')
        return parser->at++, read_hex(parser, 2, out);
    if (letter == 'u')
        return parser->at++, read_hex(parser, 4, out);
    if ((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
        return fail(parser->err, "\\%c cannot be enforced", letter);
    size_t len = utf8_decode((struct bytes){ parser->text.data + parser->at, parser->text.len - parser->at }, out);
    parser->at += len;
    return len || fail(parser->err, "it is not valid UTF-8");
}

static bool read_character(struct parser *parser, uint32_t *out)
{
    if (take(parser, "\\"))
        return read_escape(parser, out);
    size_t len = utf8_decode((struct bytes){ parser->text.data + parser->at, parser->text.len - parser->at }, out);
    parser->at += len;
    return len || fail(parser->err, "it is not valid UTF-8");
}

// What cannot be followed is passed over, so that more is accepted; false with a sentence where that must not be.
static bool pass_over(struct parser *parser, const char *what)
{
    if (parser->wide)
        return true;
    if (!parser->loose)
        return fail(parser->err, "%s cannot be masked", what);
    return *parser->loose = true;
}

// \p{...} and \P{...}: any character. False: it is none of them, or with `*ok` false, it is not closed.
static bool read_property(struct parser *parser, bool *ok)
{
    if (!take(parser, "\\p{") && !take(parser, "\\P{"))
        return false;
    while (!at_end(parser) && peek(parser) != '}')
        parser->at++;
    *ok = (take(parser, "}") || fail(parser->err, "\\p{ is not closed")) && pass_over(parser, "\\p")
        && class_add(parser, parser->wide ? 1 : ' ', codepoint_max);
    return true;
}

// One item of a class: a letter class, a character, or a range.
static bool read_class_item(struct parser *parser)
{
    uint32_t low, high;
    bool ok = true;
    if (read_property(parser, &ok))
        return ok;
    if (peek(parser) == '\\' && parser->at + 1 < parser->text.len
        && class_add_letter(parser, parser->text.data[parser->at + 1])) {
        parser->at += 2;
        return true;
    }
    if (take(parser, "\\b"))
        return class_add(parser, '\b', '\b');
    if (!read_character(parser, &low))
        return false;
    high = low;
    if (peek(parser) == '-' && parser->at + 1 < parser->text.len && parser->text.data[parser->at + 1] != ']') {
        parser->at++;
        if (!read_character(parser, &high))
            return false;
    }
    if (high < low)
        return fail(parser->err, "a range of a class runs backwards");
    return class_add(parser, low, high);
}

static bool read_class(struct parser *parser)
{
    bool negated = take(parser, "^");
    while (!take(parser, "]")) {
        if (at_end(parser))
            return fail(parser->err, "a class is not closed");
        if (!read_class_item(parser))
            return false;
    }
    return !negated || class_negate(parser);
}

static bool parse_choice(struct parser *parser, uint32_t from, uint32_t to);

// The end of the group that begins at `at`, behind its parenthesis; 0: there is none.
static size_t group_end(struct bytes text, size_t at)
{
    int depth = 0;
    for (bool class = false; at < text.len; at++) {
        char c = text.data[at];
        if (c == '\\')
            at++;
        else if (class || c == '[')
            class = c != ']';
        else if (c == '(')
            depth++;
        else if (c == ')' && --depth == 0)
            return at + 1;
    }
    return 0;
}

enum { LOOK_BYTES = 3 }; // (?= and (?!

static bool is_look_ahead(struct bytes text, size_t at)
{
    struct bytes rest = { text.data + at, text.len - at };
    return bytes_start_with(rest, bytes_of("(?=")) || bytes_start_with(rest, bytes_of("(?!"));
}

static bool is_look_behind(struct bytes text, size_t at)
{
    struct bytes rest = { text.data + at, text.len - at };
    return bytes_start_with(rest, bytes_of("(?<=")) || bytes_start_with(rest, bytes_of("(?<!"));
}

// An assertion reads nothing. False: it is none, or with `*ok` false, it is not closed or must not be passed over.
static bool read_assertion(struct parser *parser, bool *ok)
{
    *ok = true;
    if (peek(parser) == '^' || peek(parser) == '$') {
        parser->at++;
        *ok = pass_over(parser, "^ or $ inside of a pattern");
    } else if (take(parser, "\\b") || take(parser, "\\B")) {
        *ok = pass_over(parser, "\\b");
    } else if (is_look_ahead(parser->text, parser->at) || is_look_behind(parser->text, parser->at)) {
        size_t end = group_end(parser->text, parser->at);
        *ok = (end || fail(parser->err, "a group is not closed")) && pass_over(parser, "look-around");
        parser->at = end ? end : parser->text.len;
    } else {
        return false;
    }
    return true;
}

// Behind an opening parenthesis: what kind of group it is.
static bool read_group_kind(struct parser *parser)
{
    if (peek(parser) != '?' || take(parser, "?:"))
        return true;
    if (!take(parser, "?<"))
        return fail(parser->err, "(?%c cannot be masked",
                    parser->at + 1 < parser->text.len ? parser->text.data[parser->at + 1] : ' ');
    while (!at_end(parser) && peek(parser) != '>')
        parser->at++;
    return take(parser, ">") || fail(parser->err, "the name of a group is not closed");
}

static bool parse_group(struct parser *parser, uint32_t from, uint32_t to)
{
    if (!read_group_kind(parser))
        return false;
    if (++parser->depth > PATTERN_DEPTH_MAX)
        return fail(parser->err, "its groups are nested more than %d deep", PATTERN_DEPTH_MAX);
    if (!parse_choice(parser, from, to))
        return false;
    parser->depth--;
    return take(parser, ")") || fail(parser->err, "a group is not closed");
}

// One character out of a class, or one that stands for itself.
static bool parse_character(struct parser *parser, uint32_t from, uint32_t to)
{
    uint32_t c;
    bool ok = true;
    parser->class.count = 0;
    parser->class.letters = false;
    if (take(parser, ".")) {
        class_add(parser, parser->wide ? 1 : ' ', parser->wide ? codepoint_max : 0x2027); // no line ends
        class_add(parser, 0x202A, codepoint_max);
    } else if (take(parser, "[")) {
        ok = read_class(parser);
    } else if (read_property(parser, &ok)) {
        ;
    } else if (peek(parser) == '\\' && parser->at + 1 < parser->text.len
               && class_add_letter(parser, parser->text.data[parser->at + 1])) {
        parser->at += 2;
    } else {
        ok = read_character(parser, &c) && class_add(parser, c, c);
    }
    if (ok)
        add_class(parser, from, to);
    return ok;
}

static bool parse_atom(struct parser *parser, uint32_t from, uint32_t to)
{
    bool ok;
    if (read_assertion(parser, &ok)) {
        nfa_skip(&parser->nfa, from, to);
        return ok;
    }
    if (take(parser, "("))
        return parse_group(parser, from, to);
    if (peek(parser) == '*' || peek(parser) == '+' || peek(parser) == '?' || peek(parser) == '{')
        return fail(parser->err, "%c has nothing to repeat", peek(parser));
    return parse_character(parser, from, to);
}

struct quantifier {
    uint32_t low, high; // high UINT32_MAX: no end
};

static uint32_t read_count(struct parser *parser)
{
    uint32_t count = 0;
    for (; peek(parser) >= '0' && peek(parser) <= '9'; parser->at++)
        count = count > PATTERN_REPEAT_MAX ? count : count * 10 + (uint32_t)(peek(parser) - '0');
    return count;
}

static bool read_quantifier(struct parser *parser, struct quantifier *out)
{
    *out = (struct quantifier){ 1, 1 };
    if (take(parser, "*"))
        *out = (struct quantifier){ 0, UINT32_MAX };
    else if (take(parser, "+"))
        *out = (struct quantifier){ 1, UINT32_MAX };
    else if (take(parser, "?"))
        *out = (struct quantifier){ 0, 1 };
    else if (take(parser, "{")) {
        out->low = out->high = read_count(parser);
        if (take(parser, ","))
            out->high = peek(parser) == '}' ? UINT32_MAX : read_count(parser);
        if (!take(parser, "}") || out->low > out->high)
            return fail(parser->err, "{ is not followed by a count, or by a range of them");
        if (out->low > PATTERN_REPEAT_MAX || (out->high > PATTERN_REPEAT_MAX && out->high != UINT32_MAX))
            return fail(parser->err, "it counts past %d", PATTERN_REPEAT_MAX);
    } else {
        return true;
    }
    take(parser, "?"); // which match is preferred makes no difference to what matches
    return true;
}

// Something and how often it comes. The first copy is laid out before it is known how many there are to be.
static bool parse_repeated(struct parser *parser, uint32_t from, uint32_t to)
{
    struct quantifier times;
    size_t begin = parser->at;
    uint32_t start = nfa_state(&parser->nfa), end = nfa_state(&parser->nfa);
    if (!parse_atom(parser, start, end) || !read_quantifier(parser, &times))
        return false;
    size_t behind = parser->at;
    uint32_t copies = times.high == UINT32_MAX ? times.low : times.high;
    if (times.low == 0)
        nfa_skip(&parser->nfa, from, to);
    if (times.high)
        nfa_skip(&parser->nfa, from, start);
    for (uint32_t i = 1; i < copies && !parser->nfa.full; i++) {
        if (i >= times.low)
            nfa_skip(&parser->nfa, end, to);
        start = nfa_state(&parser->nfa);
        nfa_skip(&parser->nfa, end, start);
        end = nfa_state(&parser->nfa);
        parser->at = begin;
        if (!parse_atom(parser, start, end))
            return false;
    }
    if (times.high == UINT32_MAX)
        nfa_skip(&parser->nfa, end, start);
    nfa_skip(&parser->nfa, end, to);
    parser->at = behind;
    return true;
}

static bool parse_sequence(struct parser *parser, uint32_t from, uint32_t to)
{
    while (!at_end(parser) && peek(parser) != '|' && peek(parser) != ')' && (peek(parser) != '$' || parser->depth)) {
        uint32_t next = nfa_state(&parser->nfa);
        if (parser->nfa.full)
            return fail(parser->err, "it is too intricate");
        if (!parse_repeated(parser, from, next))
            return false;
        from = next;
    }
    nfa_skip(&parser->nfa, from, to);
    return true;
}

static bool parse_choice(struct parser *parser, uint32_t from, uint32_t to)
{
    do {
        if (!parse_sequence(parser, from, to))
            return false;
    } while (take(parser, "|"));
    return true;
}

// Any text, where the pattern is not tied to an end of the string.
static void add_anything(struct parser *parser, uint32_t from, uint32_t to)
{
    uint32_t state = nfa_state(&parser->nfa);
    parser->class.count = 0;
    class_add(parser, parser->wide ? 1 : ' ', codepoint_max);
    nfa_skip(&parser->nfa, from, state);
    add_class(parser, state, state);
    nfa_skip(&parser->nfa, state, to);
}

static bool parse_pattern(struct parser *parser, bool whole, uint32_t from, uint32_t to)
{
    do {
        uint32_t begin = from, end = nfa_state(&parser->nfa);
        if (!take(parser, "^") && !whole && !parser->anchored) {
            begin = nfa_state(&parser->nfa);
            add_anything(parser, from, begin);
        }
        if (!parse_sequence(parser, begin, end))
            return false;
        if (take(parser, "$") || whole)
            nfa_skip(&parser->nfa, end, to);
        else
            add_anything(parser, end, to);
    } while (take(parser, "|"));
    if (!at_end(parser))
        return fail(
            parser->err,
            peek(parser) == ')' ? "a group is closed that was not opened" : "^ and $ are understood only at the ends");
    return true;
}

static bool compile_plain(struct parser *parser, enum pattern_form form, size_t *work, struct dfa *out)
{
    uint32_t begin = NFA_START, end = NFA_END;
    parser->wide = form == PATTERN_WIDE;
    parser->in_string = form == PATTERN_STRING || form == PATTERN_WIDE;
    if (parser->text.len > PATTERN_BYTES_MAX)
        return fail(parser->err, "it is %zu bytes long, and %d is the limit", parser->text.len, PATTERN_BYTES_MAX);
    if (parser->in_string) {
        begin = nfa_state(&parser->nfa);
        end = nfa_state(&parser->nfa);
        nfa_bytes(&parser->nfa, NFA_START, begin, '"', '"');
        nfa_bytes(&parser->nfa, end, NFA_END, '"', '"');
    }
    bool ok = parse_pattern(parser, form == PATTERN_WHOLE, begin, end);
    if (ok && !dfa_from_nfa(&parser->nfa, work, out))
        ok = fail(parser->err, "it is too intricate");
    nfa_free(&parser->nfa);
    return ok;
}

// ---- look-ahead ----

// What both accept, or what the first alone does, takes the first one's place.
static bool narrow(struct dfa *dfa, const struct dfa *by, bool with, size_t *work, struct error *err)
{
    struct dfa narrower = { 0 };
    bool ok = with ? dfa_intersect(dfa, by, work, &narrower) : dfa_subtract(dfa, by, work, &narrower);
    if (!ok)
        return fail(err, "it is too intricate beside another");
    dfa_free(dfa);
    *dfa = narrower;
    return true;
}

// Is there a | outside of all groups? Then a look-ahead belongs to the first alternative only.
static bool has_alternatives(struct bytes text)
{
    int depth = 0;
    bool class = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '\\')
            i++;
        else if (class || c == '[')
            class = c != ']';
        else if (c == '|' && !depth)
            return true;
        else
            depth += (c == '(') - (c == ')');
    }
    return false;
}

// `^(?!A)B` is B without what begins with A; `^(?=A)B` is B that begins with A, too. A negative one is read the other
// way about, wide in a narrow pattern, so that the result errs on the same side.
static bool look_ahead(struct bytes look, enum pattern_form form, size_t *work, bool *loose, struct dfa *dfa,
                       struct error *err)
{
    bool negative = look.data[LOOK_BYTES - 1] == '!';
    enum pattern_form opposite = form == PATTERN_WIDE ? PATTERN_STRING : PATTERN_WIDE;
    struct parser parser = { .text = { look.data + LOOK_BYTES, look.len - LOOK_BYTES - 1 },
                             .anchored = true,
                             .loose = negative ? NULL : loose,
                             .err = err };
    struct dfa ahead = { 0 };
    bool ok = compile_plain(&parser, negative ? opposite : form, work, &ahead)
        && narrow(dfa, &ahead, !negative, work, err);
    dfa_free(&ahead);
    return ok;
}

static bool compile(struct bytes pattern, enum pattern_form form, size_t *work, struct dfa *out, bool *loose,
                    struct error *err)
{
    size_t begin = pattern.len && pattern.data[0] == '^', at = begin, end;
    if ((form != PATTERN_STRING && form != PATTERN_WIDE) || has_alternatives(pattern))
        begin = at = 0;
    while (at && at < pattern.len && is_look_ahead(pattern, at) && (end = group_end(pattern, at)))
        at = end;
    struct parser parser = {
        .text = { pattern.data + at, pattern.len - at }, .anchored = at, .loose = loose, .err = err
    };
    if (!compile_plain(&parser, form, work, out))
        return false;
    bool ok = true;
    for (; ok && begin < at; begin = end) {
        end = group_end(pattern, begin);
        ok = look_ahead((struct bytes){ pattern.data + begin, end - begin }, form, work, loose, out, err);
    }
    if (!ok)
        dfa_free(out);
    return ok;
}

bool pattern_compile(struct bytes pattern, enum pattern_form form, bool both, size_t *work, struct dfa *dfa,
                     bool *loose, struct error *err)
{
    struct dfa one = { 0 };
    bool ok = compile(pattern, form, work, &one, loose, err);
    if (ok && both)
        ok = narrow(dfa, &one, true, work, err);
    else if (ok)
        *dfa = one;
    if (both)
        dfa_free(&one);
    if (!ok)
        dfa_free(dfa);
    return ok;
}

bool pattern_exclude(struct bytes pattern, size_t *work, struct dfa *dfa, struct error *err)
{
    struct dfa one = { 0 };
    bool ok = compile(pattern, PATTERN_WIDE, work, &one, NULL, err) && narrow(dfa, &one, false, work, err);
    dfa_free(&one);
    return ok;
}
