// SPDX-License-Identifier: Apache-2.0
// Reader of regexes within a Lark grammar, in Python's spelling: what is regular of them. Flags: i (ASCII letters of
// either case) and s (. takes line breaks, too). \d, \w and \s are ASCII.
#include "base/utf8.h"
#include "text/grammar/ebnf.h"

struct regex {
    struct ebnf *tree;
    struct bytes text;
    size_t at;
    int depth;
    bool either_case, dot_all;
};

struct class {
    struct ebnf_range ranges[EBNF_CLASS_RANGES_MAX];
    size_t count;
};

static uint32_t read_alternatives(struct regex *regex);

static bool at_end(const struct regex *regex) { return regex->at >= regex->text.len; }

static char peek(const struct regex *regex) { return at_end(regex) ? '\0' : regex->text.data[regex->at]; }

static bool take(struct regex *regex, const char *text)
{
    if (!bytes_start_with(bytes_from(regex->text, regex->at), bytes_of(text)))
        return false;
    regex->at += strlen(text);
    return true;
}

// ---- characters -----------------------------------------------------------------------------------------------------

static bool class_add_range(struct regex *regex, struct class *class, uint32_t low, uint32_t high)
{
    if (class->count == EBNF_CLASS_RANGES_MAX)
        return ebnf_fail(regex->tree, "a character class has more than %d ranges", EBNF_CLASS_RANGES_MAX);
    class->ranges[class->count++] = (struct ebnf_range){ low, high };
    return true;
}

// The part of a range that lies in `first` .. `last`, moved by `by`.
static bool add_moved(struct regex *regex, struct class *class, struct ebnf_range range, char first, char last, int by)
{
    uint32_t low = range.low > (uint32_t)first ? range.low : (uint32_t)first;
    uint32_t high = range.high < (uint32_t)last ? range.high : (uint32_t)last;
    return low > high || class_add_range(regex, class, (uint32_t)((int)low + by), (uint32_t)((int)high + by));
}

static bool add_range(struct regex *regex, struct class *class, uint32_t low, uint32_t high)
{
    enum { TO_UPPER = 'A' - 'a' };
    struct ebnf_range range = { low, high };
    return class_add_range(regex, class, low, high)
        && (!regex->either_case
            || (add_moved(regex, class, range, 'a', 'z', TO_UPPER)
                && add_moved(regex, class, range, 'A', 'Z', -TO_UPPER)));
}

// \d \w \s and their complements. False: the letter is none of them.
static bool add_letter_class(struct class *class, char letter)
{
    static const struct {
        char letter;
        struct ebnf_range ranges[5];
    } rows[] = {
        { 'd', { { '0', '9' } } },
        { 'D', { { 1, '/' }, { ':', EBNF_CODEPOINT_MAX } } },
        { 'w', { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } } },
        { 'W', { { 1, '/' }, { ':', '@' }, { '[', '^' }, { '`', '`' }, { '{', EBNF_CODEPOINT_MAX } } },
        { 's', { { '\t', '\r' }, { ' ', ' ' } } },
        { 'S', { { 1, '\b' }, { '\r' + 1, ' ' - 1 }, { '!', EBNF_CODEPOINT_MAX } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].letter != letter || class->count + 5 > EBNF_CLASS_RANGES_MAX)
            continue;
        for (size_t k = 0; k < 5 && rows[i].ranges[k].high; k++)
            class->ranges[class->count++] = rows[i].ranges[k];
        return true;
    }
    return false;
}

static bool read_hex(struct regex *regex, size_t digits, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < digits; i++, regex->at++) {
        int digit = at_end(regex) ? -1 : bytes_hex_digit(peek(regex));
        if (digit < 0)
            return ebnf_fail(regex->tree, "\\x of a regex asks for 2 hexadecimal digits, \\u for 4 and \\U for 8");
        *out = *out << 4 | (uint32_t)digit;
    }
    return (*out <= EBNF_CODEPOINT_MAX && (*out < 0xD800 || *out > 0xDFFF))
        || ebnf_fail(regex->tree, "U+%X is no character", *out);
}

// Behind a backslash: one character.
static bool read_escape(struct regex *regex, uint32_t *out)
{
    static const char controls[] = "n\nr\rt\tf\fv\va\a";
    char letter = peek(regex);
    if (letter == 'x' || letter == 'u' || letter == 'U')
        return regex->at++, read_hex(regex, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, out);
    for (const char *pair = controls; *pair; pair += 2)
        if (*pair == letter)
            return regex->at++, *out = (uint32_t)pair[1], true;
    if ((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
        return ebnf_fail(regex->tree, "\\%c of a regex is not supported", letter);
    size_t len = utf8_decode(bytes_from(regex->text, regex->at), out);
    regex->at += len;
    return len || ebnf_fail(regex->tree, "a regex ends in a backslash");
}

static bool read_character(struct regex *regex, uint32_t *out)
{
    if (take(regex, "\\"))
        return read_escape(regex, out);
    size_t len = utf8_decode(bytes_from(regex->text, regex->at), out);
    regex->at += len;
    return len || ebnf_fail(regex->tree, "it is not valid UTF-8");
}

static bool read_class_item(struct regex *regex, struct class *class)
{
    uint32_t low, high;
    if (peek(regex) == '\\' && regex->at + 1 < regex->text.len
        && add_letter_class(class, regex->text.data[regex->at + 1]))
        return regex->at += 2, true;
    if (take(regex, "\\b"))
        return class_add_range(regex, class, '\b', '\b');
    if (!read_character(regex, &low))
        return false;
    high = low;
    if (peek(regex) == '-' && regex->at + 1 < regex->text.len && regex->text.data[regex->at + 1] != ']') {
        regex->at++;
        if (!read_character(regex, &high))
            return false;
    }
    return low <= high ? add_range(regex, class, low, high)
                       : ebnf_fail(regex->tree, "a range of a character class runs backwards");
}

static uint32_t read_class(struct regex *regex)
{
    struct class class = { .count = 0 };
    bool negated = take(regex, "^");
    for (bool first = true; first || !take(regex, "]"); first = false) { // a ] that comes first is a character
        if (at_end(regex))
            return ebnf_fail(regex->tree, "a character class of a regex is not closed"), EBNF_NONE;
        if (!read_class_item(regex, &class))
            return EBNF_NONE;
    }
    return ebnf_class(regex->tree, class.ranges, class.count, negated);
}

// ---- parts ----------------------------------------------------------------------------------------------------------

static uint32_t refuse(struct regex *regex, const char *what)
{
    ebnf_fail(regex->tree, "%s of a regex cannot be masked", what);
    return EBNF_NONE;
}

static uint32_t read_group(struct regex *regex)
{
    if (take(regex, "?P<") || (peek(regex) == '?' && !take(regex, "?:"))) {
        if (regex->text.data[regex->at - 1] != '<' || peek(regex) == '=' || peek(regex) == '!')
            return refuse(regex, "(?...), other than (?:...) and (?P<name>...),");
        while (!at_end(regex) && peek(regex) != '>')
            regex->at++;
        if (!take(regex, ">"))
            return ebnf_fail(regex->tree, "the name of a group is not closed"), EBNF_NONE;
    }
    if (++regex->depth > EBNF_DEPTH_MAX)
        return ebnf_fail(regex->tree, "groups are nested more than %d deep", EBNF_DEPTH_MAX), EBNF_NONE;
    uint32_t node = read_alternatives(regex);
    regex->depth--;
    if (node != EBNF_NONE && !take(regex, ")"))
        return ebnf_fail(regex->tree, "a group of a regex is not closed"), EBNF_NONE;
    return node;
}

static uint32_t read_atom(struct regex *regex)
{
    struct ebnf_range line_break = { '\n', '\n' };
    struct class class = { .count = 0 };
    uint32_t c;
    if (take(regex, "("))
        return read_group(regex);
    if (take(regex, "["))
        return read_class(regex);
    if (take(regex, "."))
        return ebnf_class(regex->tree, &line_break, !regex->dot_all, true);
    if (peek(regex) == '^' || peek(regex) == '$')
        return refuse(regex, "^ or $");
    if (take(regex, "\\b") || take(regex, "\\B"))
        return refuse(regex, "\\b");
    if (strchr("*+?{", peek(regex)))
        return ebnf_fail(regex->tree, "%c of a regex has nothing to repeat", peek(regex)), EBNF_NONE;
    if (peek(regex) == '\\' && regex->at + 1 < regex->text.len
        && add_letter_class(&class, regex->text.data[regex->at + 1])) {
        regex->at += 2;
        return ebnf_class(regex->tree, class.ranges, class.count, false);
    }
    if (!read_character(regex, &c) || !add_range(regex, &class, c, c))
        return EBNF_NONE;
    return class.count == 1 ? ebnf_character(regex->tree, c)
                            : ebnf_class(regex->tree, class.ranges, class.count, false);
}

static uint32_t read_count(struct regex *regex)
{
    uint32_t count = 0;
    for (; peek(regex) >= '0' && peek(regex) <= '9'; regex->at++)
        count = count > EBNF_REPEAT_MAX ? count : count * 10 + (uint32_t)(peek(regex) - '0');
    return count;
}

static bool read_counts(struct regex *regex, uint32_t *low, uint32_t *high)
{
    *low = *high = read_count(regex);
    if (take(regex, ","))
        *high = peek(regex) == '}' ? RULES_UNBOUNDED : read_count(regex);
    if (!take(regex, "}") || *low > *high)
        return ebnf_fail(regex->tree, "{ of a regex is not followed by a count, or by a range of them");
    return (*low <= EBNF_REPEAT_MAX && (*high <= EBNF_REPEAT_MAX || *high == RULES_UNBOUNDED))
        || ebnf_fail(regex->tree, "a regex counts past %d", EBNF_REPEAT_MAX);
}

static uint32_t read_repeated(struct regex *regex)
{
    uint32_t node = read_atom(regex), low = 0, high = RULES_UNBOUNDED;
    if (node == EBNF_NONE)
        return node;
    if (take(regex, "+"))
        low = 1;
    else if (take(regex, "?"))
        high = 1;
    else if (take(regex, "{")) {
        if (!read_counts(regex, &low, &high))
            return EBNF_NONE;
    } else if (!take(regex, "*")) {
        return node;
    }
    if (!take(regex, "?")) // which match is preferred makes no difference to what matches
        take(regex, "+");
    return ebnf_repeat(regex->tree, node, low, high);
}

static uint32_t read_sequence(struct regex *regex)
{
    uint32_t begin = ebnf_begin(regex->tree);
    while (!at_end(regex) && peek(regex) != '|' && peek(regex) != ')')
        if (!ebnf_add(regex->tree, read_repeated(regex)))
            return EBNF_NONE;
    return ebnf_end(regex->tree, begin, EBNF_SEQUENCE);
}

static uint32_t read_alternatives(struct regex *regex)
{
    uint32_t begin = ebnf_begin(regex->tree);
    do {
        if (!ebnf_add(regex->tree, read_sequence(regex)))
            return EBNF_NONE;
    } while (take(regex, "|"));
    return ebnf_end(regex->tree, begin, EBNF_CHOICE);
}

uint32_t ebnf_read_regex(struct ebnf *tree, struct bytes pattern, struct bytes flags)
{
    struct regex regex = { .tree = tree, .text = pattern };
    for (size_t i = 0; i < flags.len; i++) {
        regex.either_case |= flags.data[i] == 'i';
        regex.dot_all |= flags.data[i] == 's';
        if (!strchr("isu", flags.data[i]))
            return ebnf_fail(tree, "the flag %c of a regex is not supported; i and s are", flags.data[i]), EBNF_NONE;
    }
    uint32_t node = read_alternatives(&regex);
    if (node != EBNF_NONE && !at_end(&regex))
        return ebnf_fail(tree, "a regex closes a group that it did not open"), EBNF_NONE;
    return node;
}
