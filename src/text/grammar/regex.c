// SPDX-License-Identifier: Apache-2.0
// Reader of regexes: atoms, assertions and classes; the rest is as in any notation.
#include "text/grammar/regex.h"

#include "base/utf8.h"
#include "text/grammar/notation.h"

struct regex {
    struct reader reader;
    struct regex_style style;
    bool either_case, dot_all;
    struct character_class class; // being read
};

static struct regex *regex_of(struct reader *reader) { return (struct regex *)reader; }

// The characters that negated classes are about, and the last of those of \D, \W and \S.
static uint32_t first_character(const struct regex *regex) { return regex->style.ecma && !regex->style.wide ? ' ' : 1; }

static uint32_t last_character(const struct regex *regex)
{
    return !regex->style.ecma ? CODEPOINT_MAX : regex->style.wide ? ASCII_MAX : '~';
}

// ---- assertions -----------------------------------------------------------------------------------------------------

size_t regex_find(struct bytes text, size_t at, char wanted)
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

bool regex_is_look_ahead(struct bytes rest)
{
    return bytes_start_with(rest, bytes_of("(?=")) || bytes_start_with(rest, bytes_of("(?!"));
}

// Passes over an assertion, so that more is accepted; false with a sentence where that must not be.
static bool pass_over(struct regex *regex, const char *what)
{
    if (regex->style.wide)
        return true;
    if (!regex->style.loose)
        return ebnf_fail(regex->reader.tree, "%s cannot be masked", what);
    return *regex->style.loose = true;
}

// An assertion reads nothing. False: it is none, or with `*ok` false, it is not closed or must not be passed over.
static bool read_assertion(struct regex *regex, bool *ok)
{
    struct reader *reader = &regex->reader;
    if (take(reader, "^") || take(reader, "$")) {
        *ok = pass_over(regex, regex->style.search ? "^ or $ inside of a regex" : "^ or $ of a regex");
    } else if (take(reader, "\\b") || take(reader, "\\B")) {
        *ok = pass_over(regex, "\\b");
    } else if (starts_with(reader, "(?=") || starts_with(reader, "(?!") || starts_with(reader, "(?<=")
               || starts_with(reader, "(?<!")) {
        size_t end = regex_find(reader->text, reader->at, ')');
        *ok = (end || ebnf_fail(reader->tree, "a group is not closed")) && pass_over(regex, "look-around");
        reader->at = end ? end : reader->text.len;
    } else {
        return false;
    }
    return true;
}

// ---- classes --------------------------------------------------------------------------------------------------------

static bool add_range(struct regex *regex, uint32_t low, uint32_t high)
{
    return class_add(&regex->class, low, high)
        || ebnf_fail(regex->reader.tree, "a character class has more than %d ranges", CLASS_RANGES_MAX);
}

// \p{...} and \P{...}: any character. False: it is none of them, or with `*ok` false, it is not closed.
static bool read_property(struct regex *regex, bool *ok)
{
    struct reader *reader = &regex->reader;
    if (!regex->style.ecma || (!take(reader, "\\p{") && !take(reader, "\\P{")))
        return false;
    while (!at_end(reader) && peek(reader) != '}')
        reader->at++;
    *ok = (take(reader, "}") || ebnf_fail(reader->tree, "\\p{ is not closed")) && pass_over(regex, "\\p")
        && add_range(regex, first_character(regex), CODEPOINT_MAX);
    return true;
}

// \d \w \s and their complements, or \p. False: it is none of them.
static bool read_letters(struct regex *regex, bool *ok)
{
    struct reader *reader = &regex->reader;
    *ok = true;
    if (read_property(regex, ok))
        return true;
    if (peek(reader) != '\\'
        || !class_add_letters(&regex->class, peek_at(reader, 1), first_character(regex), last_character(regex)))
        return false;
    reader->at += 2;
    return true;
}

static bool read_class_item(struct reader *reader, struct character_class *class, bool *ok)
{
    if (!take(reader, "\\b"))
        return read_letters(regex_of(reader), ok);
    *ok = class_add(class, '\b', '\b');
    return true;
}

// With the other case of ASCII letters.
static bool add_cases(struct regex *regex)
{
    static const struct {
        uint32_t first, last;
        int32_t other;
    } cases[] = { { 'a', 'z', 'A' - 'a' }, { 'A', 'Z', 'a' - 'A' } };
    size_t count = regex->either_case ? regex->class.count : 0;
    for (size_t i = 0; i < 2 * count; i++) {
        struct range range = regex->class.ranges[i / 2];
        uint32_t low = range.low > cases[i % 2].first ? range.low : cases[i % 2].first;
        uint32_t high = range.high < cases[i % 2].last ? range.high : cases[i % 2].last;
        if (low <= high
            && !add_range(regex, (uint32_t)((int32_t)low + cases[i % 2].other),
                          (uint32_t)((int32_t)high + cases[i % 2].other)))
            return false;
    }
    return true;
}

// The node of the class that has been read.
static uint32_t finish_class(struct regex *regex, bool negated)
{
    static struct range half_of_a_pair[] = { { 0xD800, 0xD800 } }; // which no text has
    struct character_class *class = &regex->class;
    bool letters = regex->style.ecma && class->letters;
    uint32_t last = letters ? ASCII_MAX : CODEPOINT_MAX;
    if (!add_cases(regex))
        return EBNF_NONE;
    if (negated && !class_negate(class, first_character(regex), last))
        return ebnf_fail(regex->reader.tree, "a character class has more than %d ranges", CLASS_RANGES_MAX), EBNF_NONE;
    if (letters && regex->style.wide && !add_range(regex, ASCII_MAX + 1, CODEPOINT_MAX))
        return EBNF_NONE;
    if (!class->count && regex->style.ecma)
        return ebnf_class(regex->reader.tree, half_of_a_pair, 1);
    return ebnf_class(regex->reader.tree, class->ranges, class->count);
}

static uint32_t read_class(struct regex *regex)
{
    bool negated;
    return notation_class(&regex->reader, &regex->class, &negated) ? finish_class(regex, negated) : EBNF_NONE;
}

// Any character but the ends of lines.
static uint32_t read_dot(struct regex *regex)
{
    if (regex->style.ecma)
        add_range(regex, first_character(regex), regex->style.wide ? CODEPOINT_MAX : 0x2027);
    if (regex->style.ecma)
        add_range(regex, 0x202A, CODEPOINT_MAX);
    else if (!regex->dot_all)
        add_range(regex, '\n', '\n');
    return finish_class(regex, !regex->style.ecma);
}

// ---- atoms ----------------------------------------------------------------------------------------------------------

static uint32_t read_group(struct regex *regex)
{
    struct reader *reader = &regex->reader;
    if (take(reader, "?<") || (!regex->style.ecma && take(reader, "?P<"))) {
        while (!at_end(reader) && peek(reader) != '>')
            reader->at++;
        if (!take(reader, ">"))
            return ebnf_fail(reader->tree, "the name of a group is not closed"), EBNF_NONE;
    } else if (peek(reader) == '?' && !take(reader, "?:")) {
        return ebnf_fail(reader->tree, "(%.2s of a regex cannot be masked", reader->text.data + reader->at), EBNF_NONE;
    }
    return notation_group(reader, ")");
}

static uint32_t read_character(struct regex *regex)
{
    uint32_t c;
    if (!notation_character(&regex->reader, &c) || !add_range(regex, c, c))
        return EBNF_NONE;
    bool half = c >= 0xD800 && c <= 0xDFFF;
    return regex->either_case || half ? finish_class(regex, false) : ebnf_character(regex->reader.tree, c);
}

static uint32_t read_atom(struct reader *reader)
{
    struct regex *regex = regex_of(reader);
    bool ok;
    regex->class.count = 0;
    regex->class.letters = false;
    if (read_assertion(regex, &ok))
        return ok ? ebnf_text(reader->tree, bytes_of("")) : EBNF_NONE;
    if (take(reader, "("))
        return read_group(regex);
    if (take(reader, "["))
        return read_class(regex);
    if (take(reader, "."))
        return read_dot(regex);
    if (read_letters(regex, &ok))
        return ok ? finish_class(regex, false) : EBNF_NONE;
    return read_character(regex);
}

static bool ends_sequence(const struct reader *reader)
{
    char c = peek(reader);
    bool search = ((const struct regex *)reader)->style.search;
    return at_end(reader) || c == '|' || c == ')' || (c == '$' && !reader->depth && search);
}

// ---- the whole ------------------------------------------------------------------------------------------------------

static uint32_t any_text(struct regex *regex)
{
    struct range any = { first_character(regex), CODEPOINT_MAX };
    return ebnf_repeat(regex->reader.tree, ebnf_class(regex->reader.tree, &any, 1), 0, RULES_UNBOUNDED);
}

// An alternative with what may stand before and behind it.
static uint32_t read_searched(struct regex *regex)
{
    struct reader *reader = &regex->reader;
    uint32_t begin = ebnf_begin(reader->tree);
    if (!take(reader, "^") && !regex->style.starts && !ebnf_add(reader->tree, any_text(regex)))
        return EBNF_NONE;
    if (!ebnf_add(reader->tree, notation_sequence(reader)))
        return EBNF_NONE;
    if (!take(reader, "$") && !regex->style.ends && !ebnf_add(reader->tree, any_text(regex)))
        return EBNF_NONE;
    return ebnf_end(reader->tree, begin, EBNF_SEQUENCE);
}

static uint32_t read_whole(struct regex *regex)
{
    struct ebnf *tree = regex->reader.tree;
    uint32_t begin = ebnf_begin(tree);
    do {
        if (!ebnf_add(tree, regex->style.search ? read_searched(regex) : notation_sequence(&regex->reader)))
            return EBNF_NONE;
    } while (take(&regex->reader, "|"));
    return ebnf_end(tree, begin, EBNF_CHOICE);
}

uint32_t regex_read(struct ebnf *tree, struct bytes pattern, struct bytes flags, const struct regex_style *style)
{
    const struct notation notation = {
        .name = "regex",
        .repeats = "*+?{",
        .controls = style->ecma ? "n\nr\rt\tf\fv\v" : "n\nr\rt\tf\fv\va\a",
        .leading_bracket = !style->ecma,
        .ecma = style->ecma,
        .skip_space = notation_skip_nothing,
        .skip_blanks = notation_skip_nothing,
        .read_atom = read_atom,
        .ends_sequence = ends_sequence,
        .read_class_item = read_class_item,
    };
    struct regex regex = { .reader = { .tree = tree, .text = pattern, .notation = &notation }, .style = *style };
    for (size_t i = 0; i < flags.len; i++) {
        regex.either_case |= flags.data[i] == 'i';
        regex.dot_all |= flags.data[i] == 's';
        if (!strchr("isu", flags.data[i]))
            return ebnf_fail(tree, "the flag %c of a regex is not supported; i and s are", flags.data[i]), EBNF_NONE;
    }
    uint32_t node = read_whole(&regex);
    if (node != EBNF_NONE && !at_end(&regex.reader))
        return ebnf_fail(tree,
                         peek(&regex.reader) == ')' ? "a regex closes a group that it did not open"
                                                    : "^ and $ are understood only at the ends"),
               EBNF_NONE;
    return node;
}
