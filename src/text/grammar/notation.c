// SPDX-License-Identifier: Apache-2.0
// The recursive descent of GBNF, Lark and regexes, with a row of differences for each of them.
#include "text/grammar/notation.h"

#include "base/utf8.h"

bool notation_fail_found(struct reader *reader, const char *expected)
{
    char c = peek(reader);
    if (at_end(reader))
        return ebnf_fail(reader->tree, "the %s ends, and %s was expected", reader->notation->name, expected);
    if (c >= ' ' && c < 0x7F)
        return ebnf_fail(reader->tree, "found '%c', expected %s", c, expected);
    return ebnf_fail(reader->tree, "found byte %d, expected %s", (uint8_t)c, expected);
}

// ---- layout ---------------------------------------------------------------------------------------------------------

void notation_skip_nothing(struct reader *reader) { (void)reader; }

void notation_skip_blanks(struct reader *reader)
{
    while (peek(reader) == ' ' || peek(reader) == '\t')
        reader->at++;
}

void notation_skip_space(struct reader *reader)
{
    for (;; reader->at++) {
        if (peek(reader) == '#' || starts_with(reader, reader->notation->comment))
            while (!at_end(reader) && peek(reader) != '\n')
                reader->at++;
        if (peek(reader) == '\n')
            reader->tree->line++;
        else if (peek(reader) != ' ' && peek(reader) != '\t' && peek(reader) != '\r')
            return;
    }
}

bool notation_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool notation_is_name(char c) { return notation_is_letter(c) || c == '_' || c == '-'; }

// ---- characters -----------------------------------------------------------------------------------------------------

static bool read_hex(struct reader *reader, size_t digits, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < digits; i++, reader->at++) {
        int digit = at_end(reader) ? -1 : bytes_hex_digit(peek(reader));
        if (digit < 0)
            return notation_fail_found(reader, "a hexadecimal digit: \\x has two of them, \\u four and \\U eight");
        *out = *out << 4 | (uint32_t)digit;
    }
    bool surrogate = *out >= 0xD800 && *out <= 0xDFFF && !reader->notation->ecma;
    return (*out <= CODEPOINT_MAX && !surrogate) || ebnf_fail(reader->tree, "U+%X is no character", *out);
}

static bool read_plain(struct reader *reader, uint32_t *out)
{
    size_t len = utf8_decode(bytes_from(reader->text, reader->at), out);
    reader->at += len;
    return len || ebnf_fail(reader->tree, "it is not valid UTF-8");
}

// Behind a backslash.
static bool read_escape(struct reader *reader, uint32_t *out)
{
    const struct notation *notation = reader->notation;
    char letter = peek(reader);
    size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' && !notation->ecma ? 8 : 0;
    if (digits)
        return reader->at++, read_hex(reader, digits, out);
    for (const char *pair = notation->controls; *pair; pair += 2)
        if (*pair == letter)
            return reader->at++, *out = (uint8_t)pair[1], true;
    bool plain = notation->escapes ? letter && strchr(notation->escapes, letter) : !notation_is_letter(letter);
    if (!at_end(reader) && plain)
        return read_plain(reader, out);
    if (!at_end(reader) && !notation->escapes)
        return ebnf_fail(reader->tree, "\\%c of a regex cannot be masked", letter);
    return notation_fail_found(reader, "an escape (\\n \\r \\t \\\\ \\\" \\xHH \\uHHHH \\UHHHHHHHH)");
}

bool notation_character(struct reader *reader, uint32_t *out)
{
    return take(reader, "\\") ? read_escape(reader, out) : read_plain(reader, out);
}

// ---- texts and classes ----------------------------------------------------------------------------------------------

static bool fail_in_line(struct reader *reader)
{
    return ebnf_fail(reader->tree,
                     "the line ends within a text or a class, which has no closing quote or bracket; "
                     "write \\n for a line break in it");
}

bool notation_quoted(struct reader *reader, char quote, struct strbuf *out)
{
    uint32_t c;
    strbuf_add_text(out, "");
    while (!take(reader, (const char[]){ quote, '\0' })) {
        if (at_end(reader))
            return ebnf_fail(reader->tree, "a text has no closing quote");
        if (peek(reader) == '\n')
            return fail_in_line(reader);
        if (!notation_character(reader, &c))
            return false;
        strbuf_add_codepoint(out, c);
    }
    return true;
}

static bool read_bound(struct reader *reader, uint32_t *out)
{
    if (at_end(reader))
        return ebnf_fail(reader->tree, "a character class has no closing bracket");
    if (peek(reader) == '\n' && reader->notation->escapes)
        return fail_in_line(reader);
    return notation_character(reader, out);
}

// A character or a range of them.
static bool read_range(struct reader *reader, struct range *out)
{
    if (!read_bound(reader, &out->low))
        return false;
    out->high = out->low;
    if (peek(reader) == '-' && reader->at + 1 < reader->text.len && peek_at(reader, 1) != ']') {
        reader->at++;
        if (!read_bound(reader, &out->high))
            return false;
    }
    return out->low <= out->high || ebnf_fail(reader->tree, "a range of a character class runs backwards");
}

bool notation_class(struct reader *reader, struct character_class *class, bool *negated)
{
    struct range range;
    bool ok = true;
    *negated = take(reader, "^");
    for (bool first = reader->notation->leading_bracket; ok && (first || !take(reader, "]")); first = false) {
        if (reader->notation->read_class_item && reader->notation->read_class_item(reader, class, &ok))
            continue;
        if (!read_range(reader, &range))
            return false;
        if (!class_add(class, range.low, range.high))
            return ebnf_fail(reader->tree, "a character class has more than %d ranges", CLASS_RANGES_MAX);
    }
    return ok;
}

// ---- expressions ----------------------------------------------------------------------------------------------------

uint32_t notation_group(struct reader *reader, const char *close)
{
    if (++reader->depth > EBNF_DEPTH_MAX)
        return ebnf_fail(reader->tree, "groups are nested more than %d deep", EBNF_DEPTH_MAX), EBNF_NONE;
    uint32_t node = notation_alternatives(reader);
    reader->depth--;
    if (node != EBNF_NONE && !take(reader, close))
        return notation_fail_found(reader, *close == ')' ? "the ) of a group" : "the ] of an optional part"), EBNF_NONE;
    return node;
}

static bool read_count(struct reader *reader, uint32_t *out)
{
    reader->notation->skip_blanks(reader);
    if (peek(reader) < '0' || peek(reader) > '9')
        return notation_fail_found(reader, "a count");
    for (*out = 0; peek(reader) >= '0' && peek(reader) <= '9'; reader->at++)
        *out = *out > EBNF_REPEAT_MAX ? *out : *out * 10 + (uint32_t)(peek(reader) - '0');
    reader->notation->skip_blanks(reader);
    return *out <= EBNF_REPEAT_MAX || ebnf_fail(reader->tree, "a count is above %d", EBNF_REPEAT_MAX);
}

// {n}, {n,}, {,m} and {n,m}, or ~ n and ~ n..m; behind the first character.
static bool read_counts(struct reader *reader, bool braces, uint32_t *low, uint32_t *high)
{
    reader->notation->skip_blanks(reader);
    *low = 0;
    if (!(braces && peek(reader) == ',') && !read_count(reader, low))
        return false;
    *high = *low;
    if (take(reader, braces ? "," : "..")) {
        reader->notation->skip_blanks(reader);
        *high = RULES_UNBOUNDED;
        if (!(braces && peek(reader) == '}') && !read_count(reader, high))
            return false;
    }
    if (braces && !take(reader, "}"))
        return notation_fail_found(reader, "the } of a count");
    return *low <= *high || ebnf_fail(reader->tree, "a count runs backwards");
}

static bool is_repeat(const struct reader *reader)
{
    return peek(reader) && strchr(reader->notation->repeats, peek(reader));
}

static bool read_times(struct reader *reader, uint32_t *low, uint32_t *high)
{
    char c = reader->text.data[reader->at++];
    *low = c == '+';
    *high = c == '?' ? 1 : RULES_UNBOUNDED;
    return c == '+' || c == '?' || c == '*' || read_counts(reader, c == '{', low, high);
}

// An atom and the repetitions behind it.
static uint32_t read_repeated(struct reader *reader)
{
    uint32_t low, high;
    if (is_repeat(reader))
        return ebnf_fail(reader->tree, "%c has nothing to repeat before it", peek(reader)), EBNF_NONE;
    uint32_t node = reader->notation->read_atom(reader);
    for (int i = 0; node != EBNF_NONE; i++) {
        reader->notation->skip_blanks(reader);
        if (!is_repeat(reader))
            return node;
        if (i && i == reader->notation->stacked_max)
            return ebnf_fail(reader->tree, "more than %d repetitions of one another", i), EBNF_NONE;
        if (!read_times(reader, &low, &high))
            return EBNF_NONE;
        node = ebnf_repeat(reader->tree, node, low, high);
        if (!reader->notation->stacked_max) {
            if (!take(reader, "?") && !reader->notation->ecma)
                take(reader, "+");
            return node;
        }
    }
    return EBNF_NONE;
}

uint32_t notation_sequence(struct reader *reader)
{
    const struct notation *notation = reader->notation;
    uint32_t begin = ebnf_begin(reader->tree);
    for (notation->skip_space(reader); !notation->ends_sequence(reader); notation->skip_space(reader))
        if (!ebnf_add(reader->tree, read_repeated(reader)))
            return EBNF_NONE;
    if (notation->end_sequence && !notation->end_sequence(reader))
        return EBNF_NONE;
    return ebnf_end(reader->tree, begin, EBNF_SEQUENCE);
}

uint32_t notation_alternatives(struct reader *reader)
{
    uint32_t begin = ebnf_begin(reader->tree);
    reader->notation->skip_space(reader);
    if (reader->notation->leading_bar)
        take(reader, "|");
    do {
        if (!ebnf_add(reader->tree, notation_sequence(reader)))
            return EBNF_NONE;
    } while (take(reader, "|"));
    return ebnf_end(reader->tree, begin, EBNF_CHOICE);
}
