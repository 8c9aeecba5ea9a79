// SPDX-License-Identifier: Apache-2.0
// Reader of GBNF (llama.cpp) and of the EBNF that grew out of it (XGrammar, SGLang, vLLM): a recursive descent over
// `name ::= alternatives`. A rule ends where the next one begins, at the start of a line.
#include "base/utf8.h"
#include "text/grammar/ebnf.h"

struct gbnf {
    struct ebnf *tree;
    struct bytes text;
    size_t at;
    int depth; // of groups
};

// ---- characters -----------------------------------------------------------------------------------------------------

static bool at_end(const struct gbnf *gbnf) { return gbnf->at >= gbnf->text.len; }

static char peek(const struct gbnf *gbnf) { return at_end(gbnf) ? '\0' : gbnf->text.data[gbnf->at]; }

static char peek_behind(const struct gbnf *gbnf) // the character after the next
{
    return gbnf->at + 1 < gbnf->text.len ? gbnf->text.data[gbnf->at + 1] : '\0';
}

static bool take(struct gbnf *gbnf, const char *text)
{
    if (!bytes_start_with(bytes_from(gbnf->text, gbnf->at), bytes_of(text)))
        return false;
    gbnf->at += strlen(text);
    return true;
}

static void skip_space(struct gbnf *gbnf)
{
    for (; !at_end(gbnf); gbnf->at++) {
        char c = peek(gbnf);
        if (c == '#')
            while (gbnf->at + 1 < gbnf->text.len && gbnf->text.data[gbnf->at + 1] != '\n')
                gbnf->at++;
        else if (c == '\n')
            gbnf->tree->line++;
        else if (c != ' ' && c != '\t' && c != '\r')
            return;
    }
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// The end of a name; a dot belongs to it between two of its letters.
static size_t name_end(const struct gbnf *gbnf)
{
    size_t at = gbnf->at;
    const char *text = gbnf->text.data;
    while (at < gbnf->text.len
           && (is_name_byte(text[at])
               || (text[at] == '.' && at > gbnf->at && at + 1 < gbnf->text.len && is_name_byte(text[at + 1]))))
        at++;
    return at;
}

static bool begins_rule(const struct gbnf *gbnf)
{
    size_t at = name_end(gbnf);
    if (at == gbnf->at)
        return false;
    while (at < gbnf->text.len && (gbnf->text.data[at] == ' ' || gbnf->text.data[at] == '\t'))
        at++;
    return bytes_start_with(bytes_from(gbnf->text, at), bytes_of("::="));
}

// Names what stands here, for a message.
static bool fail_found(struct gbnf *gbnf, const char *expected)
{
    char c = peek(gbnf);
    if (at_end(gbnf))
        return ebnf_fail(gbnf->tree, "the grammar ends, and %s was expected", expected);
    if (c >= ' ' && c < 0x7F)
        return ebnf_fail(gbnf->tree, "found '%c', expected %s", c, expected);
    return ebnf_fail(gbnf->tree, "found byte %d, expected %s", (uint8_t)c, expected);
}

static bool read_hex(struct gbnf *gbnf, size_t digits, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < digits; i++, gbnf->at++) {
        int digit = at_end(gbnf) ? -1 : bytes_hex_digit(peek(gbnf));
        if (digit < 0)
            return fail_found(gbnf, "a hexadecimal digit: \\x has two of them, \\u four and \\U eight");
        *out = *out << 4 | (uint32_t)digit;
    }
    bool surrogate = *out >= 0xD800 && *out <= 0xDFFF;
    return (*out <= EBNF_CODEPOINT_MAX && !surrogate) || ebnf_fail(gbnf->tree, "U+%X is no character", *out);
}

// Behind a backslash.
static bool read_escape(struct gbnf *gbnf, uint32_t *out)
{
    static const char controls[] = "n\nr\rt\tf\fv\vb\ba\ae\033";
    char letter = peek(gbnf);
    gbnf->at += !at_end(gbnf);
    if (letter == 'x' || letter == 'u' || letter == 'U')
        return read_hex(gbnf, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, out);
    for (const char *pair = controls; *pair; pair += 2)
        if (*pair == letter)
            return *out = (uint32_t)pair[1], true;
    *out = letter == '0' ? 0 : (uint32_t)letter;
    if (letter && strchr("0\"'\\/[]^$.*+?(){}|-", letter))
        return true;
    gbnf->at--;
    return fail_found(gbnf, "an escape (\\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH)");
}

static bool read_character(struct gbnf *gbnf, uint32_t *out)
{
    if (take(gbnf, "\\"))
        return read_escape(gbnf, out);
    if (peek(gbnf) == '\n')
        return ebnf_fail(gbnf->tree, "the line ends within a text or a class; write \\n for a line break in it");
    size_t len = utf8_decode(bytes_from(gbnf->text, gbnf->at), out);
    gbnf->at += len;
    return len || ebnf_fail(gbnf->tree, "it is not valid UTF-8");
}

// ---- parts ----------------------------------------------------------------------------------------------------------

static uint32_t read_alternatives(struct gbnf *gbnf);

static uint32_t read_text(struct gbnf *gbnf)
{
    struct strbuf text = { 0 };
    uint32_t c, node = EBNF_NONE;
    bool ok = true;
    while (ok && !take(gbnf, "\"")) {
        ok = at_end(gbnf) ? ebnf_fail(gbnf->tree, "a text has no closing quote") : read_character(gbnf, &c);
        if (ok)
            strbuf_add_codepoint(&text, c);
    }
    if (ok)
        node = ebnf_text(gbnf->tree, (struct bytes){ text.data ? text.data : "", text.len });
    strbuf_free(&text);
    return node;
}

static bool read_range(struct gbnf *gbnf, struct ebnf_range *out)
{
    if (at_end(gbnf))
        return ebnf_fail(gbnf->tree, "a character class has no closing bracket");
    if (!read_character(gbnf, &out->low))
        return false;
    out->high = out->low;
    if (peek(gbnf) != '-' || peek_behind(gbnf) == ']')
        return true;
    gbnf->at++;
    if (at_end(gbnf) || !read_character(gbnf, &out->high))
        return at_end(gbnf) && ebnf_fail(gbnf->tree, "a character class has no closing bracket");
    return out->low <= out->high || ebnf_fail(gbnf->tree, "a range of a character class runs backwards");
}

static uint32_t read_class(struct gbnf *gbnf)
{
    struct ebnf_range ranges[EBNF_CLASS_RANGES_MAX];
    size_t count = 0;
    bool negated = take(gbnf, "^");
    while (!take(gbnf, "]")) {
        if (count == EBNF_CLASS_RANGES_MAX)
            return ebnf_fail(gbnf->tree, "a character class has more than %d ranges", EBNF_CLASS_RANGES_MAX), EBNF_NONE;
        if (!read_range(gbnf, &ranges[count++]))
            return EBNF_NONE;
    }
    return ebnf_class(gbnf->tree, ranges, count, negated);
}

static uint32_t read_group(struct gbnf *gbnf)
{
    if (++gbnf->depth > EBNF_DEPTH_MAX)
        return ebnf_fail(gbnf->tree, "groups are nested more than %d deep", EBNF_DEPTH_MAX), EBNF_NONE;
    uint32_t node = read_alternatives(gbnf);
    gbnf->depth--;
    if (node != EBNF_NONE && !take(gbnf, ")"))
        return fail_found(gbnf, "the ) of a group"), EBNF_NONE;
    return node;
}

static uint32_t read_name(struct gbnf *gbnf)
{
    size_t end = name_end(gbnf);
    struct bytes name = { gbnf->text.data + gbnf->at, end - gbnf->at };
    gbnf->at = end;
    if (peek(gbnf) == '('
        && (bytes_equal(name, bytes_of("TagDispatch")) || bytes_equal(name, bytes_of("Token"))
            || bytes_equal(name, bytes_of("ExcludeToken")) || bytes_equal(name, bytes_of("TokenTagDispatch"))))
        return ebnf_fail(gbnf->tree, "%.*s(...) is not supported; use a structural_tag", (int)name.len, name.data),
               EBNF_NONE;
    return ebnf_reference(gbnf->tree, name);
}

static uint32_t read_atom(struct gbnf *gbnf)
{
    char c = peek(gbnf);
    if (take(gbnf, "\""))
        return read_text(gbnf);
    if (take(gbnf, "["))
        return read_class(gbnf);
    if (take(gbnf, "("))
        return read_group(gbnf);
    if (take(gbnf, "."))
        return ebnf_class(gbnf->tree, NULL, 0, true);
    if (is_name_byte(c))
        return read_name(gbnf);
    if (c == '<' || c == '!')
        return ebnf_fail(gbnf->tree, "tokens (<...> and !<...>) cannot be named; write their text in quotes"),
               EBNF_NONE;
    if (c && strchr("*+?{", c))
        return ebnf_fail(gbnf->tree, "%c has nothing to repeat before it", c), EBNF_NONE;
    return fail_found(gbnf, "a text in quotes, a [class], a (group) or the name of a rule"), EBNF_NONE;
}

static bool read_count(struct gbnf *gbnf, uint32_t *out)
{
    if (peek(gbnf) < '0' || peek(gbnf) > '9')
        return fail_found(gbnf, "a count");
    for (*out = 0; peek(gbnf) >= '0' && peek(gbnf) <= '9'; gbnf->at++)
        *out = *out > EBNF_REPEAT_MAX ? *out : *out * 10 + (uint32_t)(peek(gbnf) - '0');
    return *out <= EBNF_REPEAT_MAX || ebnf_fail(gbnf->tree, "a count in braces is above %d", EBNF_REPEAT_MAX);
}

// {m}, {m,} and {m,n}, behind the brace.
static bool read_counts(struct gbnf *gbnf, uint32_t *low, uint32_t *high)
{
    skip_space(gbnf);
    if (!read_count(gbnf, low))
        return false;
    skip_space(gbnf);
    *high = *low;
    if (take(gbnf, ",")) {
        skip_space(gbnf);
        *high = RULES_UNBOUNDED;
        if (peek(gbnf) != '}' && !read_count(gbnf, high))
            return false;
        skip_space(gbnf);
    }
    if (!take(gbnf, "}"))
        return fail_found(gbnf, "the } of a count");
    return *low <= *high || ebnf_fail(gbnf->tree, "a count in braces runs backwards");
}

// An atom and the repetitions behind it.
static uint32_t read_repeated(struct gbnf *gbnf)
{
    enum { STACKED_MAX = 8 }; // x+?*
    uint32_t node = read_atom(gbnf), low, high;
    for (int i = 0; node != EBNF_NONE; i++) {
        skip_space(gbnf);
        low = 0;
        high = RULES_UNBOUNDED;
        if (take(gbnf, "+"))
            low = 1;
        else if (take(gbnf, "?"))
            high = 1;
        else if (take(gbnf, "{")) {
            if (!read_counts(gbnf, &low, &high))
                return EBNF_NONE;
        } else if (!take(gbnf, "*")) {
            return node;
        }
        if (i == STACKED_MAX)
            return ebnf_fail(gbnf->tree, "more than %d repetitions of one another", STACKED_MAX), EBNF_NONE;
        node = ebnf_repeat(gbnf->tree, node, low, high);
    }
    return EBNF_NONE;
}

static bool sequence_ends(const struct gbnf *gbnf)
{
    char c = peek(gbnf);
    return at_end(gbnf) || c == '|' || (c == ')' && gbnf->depth) || begins_rule(gbnf);
}

static uint32_t read_sequence(struct gbnf *gbnf)
{
    uint32_t begin = ebnf_begin(gbnf->tree);
    for (skip_space(gbnf); !sequence_ends(gbnf); skip_space(gbnf))
        if (!ebnf_add(gbnf->tree, read_repeated(gbnf)))
            return EBNF_NONE;
    return ebnf_end(gbnf->tree, begin, EBNF_SEQUENCE);
}

static uint32_t read_alternatives(struct gbnf *gbnf)
{
    uint32_t begin = ebnf_begin(gbnf->tree);
    do {
        if (!ebnf_add(gbnf->tree, read_sequence(gbnf)))
            return EBNF_NONE;
    } while (take(gbnf, "|"));
    return ebnf_end(gbnf->tree, begin, EBNF_CHOICE);
}

// ---- rules ----------------------------------------------------------------------------------------------------------

static bool is_first_of_line(const struct gbnf *gbnf)
{
    size_t at = gbnf->at;
    while (at && (gbnf->text.data[at - 1] == ' ' || gbnf->text.data[at - 1] == '\t'))
        at--;
    return !at || gbnf->text.data[at - 1] == '\n' || gbnf->text.data[at - 1] == '\r';
}

static bool read_rule(struct gbnf *gbnf)
{
    struct ebnf *tree = gbnf->tree;
    uint32_t line = tree->line;
    if (!begins_rule(gbnf))
        return fail_found(gbnf, "a rule: name ::= ...");
    if (!is_first_of_line(gbnf))
        return ebnf_fail(tree, "a rule begins within a line; begin it on a line of its own");
    size_t end = name_end(gbnf);
    uint32_t rule = ebnf_rule(tree, (struct bytes){ gbnf->text.data + gbnf->at, end - gbnf->at });
    gbnf->at = end;
    skip_space(gbnf);
    take(gbnf, "::=");
    return ebnf_define(tree, rule, line, read_alternatives(gbnf));
}

bool gbnf_read(struct ebnf *tree, struct bytes text)
{
    struct gbnf gbnf = { .tree = tree, .text = text };
    int64_t root;
    tree->line = 1;
    for (skip_space(&gbnf); !at_end(&gbnf); skip_space(&gbnf))
        if (!read_rule(&gbnf))
            return false;
    tree->line = 0;
    if (!map_get(&tree->names, bytes_of("root"), &root))
        return ebnf_fail(tree, "the grammar has no rule named root");
    tree->root = (uint32_t)root;
    return true;
}
