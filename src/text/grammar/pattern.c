// SPDX-License-Identifier: Apache-2.0
// Regexes to NFAs (Thompson's construction), in one pass: a recursive-descent parser lays out states as it reads, and
// reads again what is counted, once for each copy.
#include "text/grammar/pattern.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "text/grammar/character_class.h"

struct parser {
    struct bytes text;
    size_t at;
    int depth;
    struct nfa nfa;
    struct character_class class; // being read
    bool wide;                    // PATTERN_WIDE
    bool anchored;                // every alternative begins where the text does
    bool *loose;                  // NULL: assertions may not be skipped
    struct error *err;
};

static const uint32_t codepoint_max = 0x10FFFF;

// ---- reading ----

static bool at_end(const struct parser *parser) { return parser->at >= parser->text.len; }

static char peek(const struct parser *parser) { return at_end(parser) ? '\0' : parser->text.data[parser->at]; }

static struct bytes rest(const struct parser *parser) { return bytes_from(parser->text, parser->at); }

static bool take(struct parser *parser, const char *text)
{
    if (!bytes_start_with(rest(parser), bytes_of(text)))
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

static bool read_plain(struct parser *parser, uint32_t *out)
{
    size_t len = utf8_decode(rest(parser), out);
    parser->at += len;
    return len || fail(parser->err, "it is not valid UTF-8");
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
    return read_plain(parser, out);
}

static bool read_character(struct parser *parser, uint32_t *out)
{
    return take(parser, "\\") ? read_escape(parser, out) : read_plain(parser, out);
}

// Skips an assertion, so that more is accepted; false with a sentence where it must not be skipped.
static bool skip_assertion(struct parser *parser, const char *what)
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
    *ok = (take(parser, "}") || fail(parser->err, "\\p{ is not closed")) && skip_assertion(parser, "\\p")
        && class_add(&parser->class, parser->wide ? 1 : ' ', codepoint_max, parser->err);
    return true;
}

// \d \w \s and their complements. False: it is none of them.
static bool read_letter_class(struct parser *parser)
{
    bool escape = peek(parser) == '\\' && parser->at + 1 < parser->text.len;
    if (!escape || !class_add_letter(&parser->class, parser->text.data[parser->at + 1], parser->err))
        return false;
    parser->at += 2;
    return true;
}

// One item of a class: a letter class, a character, or a range.
static bool read_class_item(struct parser *parser)
{
    uint32_t low, high;
    bool ok = true;
    if (read_property(parser, &ok))
        return ok;
    if (read_letter_class(parser))
        return true;
    if (take(parser, "\\b"))
        return class_add(&parser->class, '\b', '\b', parser->err);
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
    return class_add(&parser->class, low, high, parser->err);
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
    return !negated || class_negate(&parser->class, parser->err);
}

static bool parse_choice(struct parser *parser, uint32_t from, uint32_t to);

// The place behind the first `wanted` from `at` on that is outside of classes and, but for the one that begins at `at`,
// of groups; 0: there is none.
static size_t find_outside(struct bytes text, size_t at, char wanted)
{
    int depth = 0;
    for (bool class = false; at < text.len; at++) {
        char c = text.data[at];
        if (c == '\\') {
            at++;
        } else if (class || c == '[') {
            class = c != ']';
        } else {
            depth += (c == '(') - (c == ')');
            if (c == wanted && !depth)
                return at + 1;
        }
    }
    return 0;
}

static size_t group_end(struct bytes text, size_t at) { return find_outside(text, at, ')'); }

enum { LOOK_BYTES = 3 }; // (?= and (?!

static bool is_look_ahead(struct bytes rest)
{
    return bytes_start_with(rest, bytes_of("(?=")) || bytes_start_with(rest, bytes_of("(?!"));
}

static bool is_look_behind(struct bytes rest)
{
    return bytes_start_with(rest, bytes_of("(?<=")) || bytes_start_with(rest, bytes_of("(?<!"));
}

// An assertion reads nothing. False: it is none, or with `*ok` false, it is not closed or must not be passed over.
static bool read_assertion(struct parser *parser, bool *ok)
{
    *ok = true;
    if (peek(parser) == '^' || peek(parser) == '$') {
        parser->at++;
        *ok = skip_assertion(parser, "^ or $ inside of a pattern");
    } else if (take(parser, "\\b") || take(parser, "\\B")) {
        *ok = skip_assertion(parser, "\\b");
    } else if (is_look_ahead(rest(parser)) || is_look_behind(rest(parser))) {
        size_t end = group_end(parser->text, parser->at);
        *ok = (end || fail(parser->err, "a group is not closed")) && skip_assertion(parser, "look-around");
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
    struct character_class *class = &parser->class;
    struct error *err = parser->err;
    uint32_t c;
    bool ok = true;
    class->count = 0;
    class->letters = false;
    if (take(parser, ".")) {
        class_add(class, parser->wide ? 1 : ' ', parser->wide ? codepoint_max : 0x2027, err); // no line ends
        class_add(class, 0x202A, codepoint_max, err);
    } else if (take(parser, "[")) {
        ok = read_class(parser);
    } else if (!read_property(parser, &ok) && !read_letter_class(parser)) {
        ok = read_character(parser, &c) && class_add(class, c, c, err);
    }
    if (ok)
        class_to_nfa(class, &parser->nfa, from, to);
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
    class_add(&parser->class, parser->wide ? 1 : ' ', codepoint_max, parser->err);
    nfa_skip(&parser->nfa, from, state);
    class_to_nfa(&parser->class, &parser->nfa, state, state);
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
    parser->wide = parser->class.wide = form == PATTERN_WIDE;
    parser->class.in_string = form != PATTERN_WHOLE;
    if (parser->text.len > PATTERN_BYTES_MAX)
        return fail(parser->err, "it is %zu bytes long, and %d is the limit", parser->text.len, PATTERN_BYTES_MAX);
    if (parser->class.in_string) {
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

// *dfa becomes its intersection with `by` or (`with` false) the difference.
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
    if (form == PATTERN_WHOLE || find_outside(pattern, 0, '|')) // a look-ahead would belong to the first alternative
        begin = at = 0;
    while (at && at < pattern.len && is_look_ahead(bytes_from(pattern, at)) && (end = group_end(pattern, at)))
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
