// SPDX-License-Identifier: Apache-2.0
// Reader of Lark grammars, which vLLM and llguidance take: rules, TERMINALS, "texts", /regexes/, ranges, repetitions,
// %import of common terminals and %ignore. Terminals are not lexed apart from one another (as with Lark's
// lexer='dynamic_complete'): an answer is any text that some division into terminals explains.
#include <stdlib.h>

#include "base/utf8.h"
#include "text/grammar/ebnf.h"

struct lark {
    struct ebnf *tree;
    struct bytes text;
    size_t at;
    int depth;
    bool in_terminal;  // within its definition nothing is ignored
    uint32_t *ignored; // terminals
    size_t ignored_count, ignored_capacity;
    uint32_t first; // the first rule
};

static const char skipped_rule[] = "%ignore"; // no name of the text's

// ---- characters -----------------------------------------------------------------------------------------------------

static bool at_end(const struct lark *lark) { return lark->at >= lark->text.len; }

static char peek(const struct lark *lark) { return at_end(lark) ? '\0' : lark->text.data[lark->at]; }

static bool starts_with(const struct lark *lark, const char *text)
{
    return bytes_start_with(bytes_from(lark->text, lark->at), bytes_of(text));
}

static bool take(struct lark *lark, const char *text)
{
    bool found = starts_with(lark, text);
    lark->at += found ? strlen(text) : 0;
    return found;
}

static void skip_line(struct lark *lark)
{
    while (!at_end(lark) && peek(lark) != '\n')
        lark->at++;
}

static void skip_blanks(struct lark *lark)
{
    while (peek(lark) == ' ' || peek(lark) == '\t')
        lark->at++;
}

static void skip_space(struct lark *lark)
{
    for (;; lark->at++) {
        if (starts_with(lark, "//") || peek(lark) == '#')
            skip_line(lark);
        if (peek(lark) == '\n')
            lark->tree->line++;
        else if (peek(lark) != ' ' && peek(lark) != '\t' && peek(lark) != '\r')
            return;
    }
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool is_name_byte(char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; }

static struct bytes peek_name(const struct lark *lark)
{
    size_t end = lark->at;
    if (is_letter(peek(lark)))
        while (end < lark->text.len && is_name_byte(lark->text.data[end])
               && !bytes_start_with(bytes_from(lark->text, end), bytes_of("->")))
            end++;
    return (struct bytes){ lark->text.data + lark->at, end - lark->at };
}

static struct bytes take_name(struct lark *lark)
{
    struct bytes name = peek_name(lark);
    lark->at += name.len;
    return name;
}

static bool is_terminal(struct bytes name)
{
    while (name.len && *name.data == '_')
        name = bytes_from(name, 1);
    return name.len && *name.data >= 'A' && *name.data <= 'Z';
}

static bool fail_found(struct lark *lark, const char *expected)
{
    char c = peek(lark);
    if (at_end(lark))
        return ebnf_fail(lark->tree, "the grammar ends, and %s was expected", expected);
    if (c >= ' ' && c < 0x7F)
        return ebnf_fail(lark->tree, "found '%c', expected %s", c, expected);
    return ebnf_fail(lark->tree, "found byte %d, expected %s", (uint8_t)c, expected);
}

// Does `name:`, `?name:`, `!name:`, `name.priority:` or `name[attributes]:` stand here? Then its name ends at *end, the
// colon at *colon.
static bool begins_rule(const struct lark *lark, size_t *begin, size_t *end, size_t *colon)
{
    struct lark ahead = *lark;
    while (peek(&ahead) == '?' || peek(&ahead) == '!')
        ahead.at++;
    *begin = ahead.at;
    if (!take_name(&ahead).len)
        return false;
    *end = ahead.at;
    if (peek(&ahead) == '.')
        for (ahead.at++; peek(&ahead) == '-' || (peek(&ahead) >= '0' && peek(&ahead) <= '9');)
            ahead.at++;
    if (take(&ahead, "[")) {
        while (!at_end(&ahead) && !strchr("[]\n", peek(&ahead)))
            ahead.at++;
        if (!take(&ahead, "]"))
            return false;
    }
    skip_blanks(&ahead);
    *colon = ahead.at;
    return peek(&ahead) == ':';
}

static bool ends_rule(const struct lark *lark)
{
    size_t begin, end, colon;
    return at_end(lark) || peek(lark) == '%' || begins_rule(lark, &begin, &end, &colon);
}

// ---- terminals ------------------------------------------------------------------------------------------------------

static bool read_escape(struct lark *lark, uint32_t *out)
{
    static const char controls[] = "n\nr\rt\tf\fv\vb\ba\a";
    char letter = peek(lark);
    size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    lark->at += !at_end(lark);
    for (const char *pair = controls; *pair; pair += 2)
        if (*pair == letter)
            return *out = (uint32_t)pair[1], true;
    *out = (uint8_t)letter;
    if (!digits)
        return (letter && strchr("\\\"'/", letter))
            || ebnf_fail(lark->tree, "a text has an unknown escape; \\n \\r \\t \\\\ \\\" \\xHH \\uHHHH are known");
    for (*out = 0; digits--; lark->at++) {
        int digit = at_end(lark) ? -1 : bytes_hex_digit(peek(lark));
        if (digit < 0)
            return fail_found(lark, "a hexadecimal digit: \\x has two of them, \\u four and \\U eight");
        *out = *out << 4 | (uint32_t)digit;
    }
    return (*out <= EBNF_CODEPOINT_MAX && (*out < 0xD800 || *out > 0xDFFF))
        || ebnf_fail(lark->tree, "U+%X is no character", *out);
}

// A text in quotes, behind the first.
static bool read_quoted(struct lark *lark, char quote, struct strbuf *out)
{
    for (;;) {
        uint32_t c;
        if (at_end(lark) || peek(lark) == '\n')
            return ebnf_fail(lark->tree, "a text has no closing quote");
        if (take(lark, (const char[]){ quote, '\0' }))
            return true;
        if (take(lark, "\\")) {
            if (!read_escape(lark, &c))
                return false;
        } else {
            size_t len = utf8_decode(bytes_from(lark->text, lark->at), &c);
            if (!len)
                return ebnf_fail(lark->tree, "it is not valid UTF-8");
            lark->at += len;
        }
        strbuf_add_codepoint(out, c);
    }
}

// "text"i: each ASCII letter in either case.
static uint32_t either_case(struct lark *lark, struct bytes text)
{
    uint32_t begin = ebnf_begin(lark->tree);
    for (size_t i = 0; i < text.len; i++) {
        uint32_t lower = (uint8_t)text.data[i] | 0x20u;
        bool letter = lower >= 'a' && lower <= 'z';
        struct ebnf_range cases[] = { { lower, lower }, { lower ^ 0x20, lower ^ 0x20 } };
        uint32_t node = letter ? ebnf_class(lark->tree, cases, 2, false)
                               : ebnf_text(lark->tree, (struct bytes){ text.data + i, 1 });
        if (!ebnf_add(lark->tree, node))
            return EBNF_NONE;
    }
    return ebnf_end(lark->tree, begin, EBNF_SEQUENCE);
}

// "a".."z", behind the dots.
static uint32_t read_range(struct lark *lark, struct bytes low)
{
    struct strbuf high = { 0 };
    struct ebnf_range range = { 0, 0 };
    uint32_t node = EBNF_NONE;
    skip_blanks(lark);
    char quote = peek(lark);
    if (quote != '"' && quote != '\'')
        return fail_found(lark, "the text that a range ends with"), EBNF_NONE;
    lark->at++;
    if (read_quoted(lark, quote, &high)) {
        bool single = utf8_decode(low, &range.low) == low.len && low.len
            && utf8_decode(strbuf_bytes(&high), &range.high) == high.len && high.len;
        if (single && range.low <= range.high)
            node = ebnf_class(lark->tree, &range, 1, false);
        else
            ebnf_fail(lark->tree, "a range goes from one character to another that is not before it");
    }
    strbuf_free(&high);
    return node;
}

static uint32_t read_text(struct lark *lark, char quote)
{
    struct strbuf text = { 0 };
    uint32_t node = EBNF_NONE;
    strbuf_add_text(&text, "");
    if (read_quoted(lark, quote, &text)) {
        if (take(lark, ".."))
            node = read_range(lark, strbuf_bytes(&text));
        else if (peek(lark) == 'i' && take(lark, "i"))
            node = either_case(lark, strbuf_bytes(&text));
        else
            node = ebnf_text(lark->tree, strbuf_bytes(&text));
    }
    strbuf_free(&text);
    return node;
}

// /regex/flags, behind the first slash.
static uint32_t read_regex(struct lark *lark)
{
    size_t begin = lark->at;
    while (!at_end(lark) && peek(lark) != '/' && peek(lark) != '\n')
        lark->at += peek(lark) == '\\' && lark->at + 1 < lark->text.len ? 2 : 1;
    struct bytes pattern = { lark->text.data + begin, lark->at - begin };
    if (at_end(lark) || !take(lark, "/"))
        return ebnf_fail(lark->tree, "a regex is not closed in its line by a /"), EBNF_NONE;
    size_t flags = lark->at;
    while (peek(lark) >= 'a' && peek(lark) <= 'z')
        lark->at++;
    return ebnf_read_regex(lark->tree, pattern, (struct bytes){ lark->text.data + flags, lark->at - flags });
}

// A terminal of a rule, with what is ignored behind it.
static uint32_t skip_behind(struct lark *lark, uint32_t terminal)
{
    uint32_t begin = ebnf_begin(lark->tree);
    if (lark->in_terminal || terminal == EBNF_NONE)
        return terminal;
    if (!ebnf_add(lark->tree, terminal) || !ebnf_add(lark->tree, ebnf_reference(lark->tree, bytes_of(skipped_rule))))
        return EBNF_NONE;
    return ebnf_end(lark->tree, begin, EBNF_SEQUENCE);
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static uint32_t read_alternatives(struct lark *lark);

static uint32_t read_group(struct lark *lark, const char *close)
{
    if (++lark->depth > EBNF_DEPTH_MAX)
        return ebnf_fail(lark->tree, "groups are nested more than %d deep", EBNF_DEPTH_MAX), EBNF_NONE;
    uint32_t node = read_alternatives(lark);
    lark->depth--;
    if (node != EBNF_NONE && !take(lark, close))
        return fail_found(lark, *close == ')' ? "the ) of a group" : "the ] of an optional part"), EBNF_NONE;
    return node;
}

static uint32_t read_name(struct lark *lark)
{
    struct bytes name = take_name(lark);
    if (peek(lark) == '{' && lark->at + 1 < lark->text.len && is_letter(lark->text.data[lark->at + 1]))
        return ebnf_fail(lark->tree, "templates (%.*s{...}) are not supported; write the rule out",
                         name.len > 60 ? 60 : (int)name.len, name.data),
               EBNF_NONE;
    if (lark->in_terminal && !is_terminal(name))
        return ebnf_fail(lark->tree, "a terminal cannot hold the rule \"%.*s\"", name.len > 60 ? 60 : (int)name.len,
                         name.data),
               EBNF_NONE;
    uint32_t node = ebnf_reference(lark->tree, name);
    return is_terminal(name) ? skip_behind(lark, node) : node;
}

static uint32_t read_atom(struct lark *lark)
{
    char c = peek(lark);
    if (take(lark, "\"") || take(lark, "'"))
        return skip_behind(lark, read_text(lark, c));
    if (c == '/') {
        lark->at++;
        return skip_behind(lark, read_regex(lark));
    }
    if (take(lark, "("))
        return read_group(lark, ")");
    if (take(lark, "["))
        return ebnf_repeat(lark->tree, read_group(lark, "]"), 0, 1);
    if (is_letter(c))
        return read_name(lark);
    if (c == '<' || c == '@')
        return ebnf_fail(lark->tree, "%c...: tokens and other grammars cannot be named; write the text in quotes", c),
               EBNF_NONE;
    if (c && strchr("*+?~{", c))
        return ebnf_fail(lark->tree, "%c has nothing to repeat before it", c), EBNF_NONE;
    return fail_found(lark, "a text in quotes, a /regex/, a (group) or a name"), EBNF_NONE;
}

static bool read_count(struct lark *lark, uint32_t *out)
{
    skip_blanks(lark);
    if (peek(lark) < '0' || peek(lark) > '9')
        return fail_found(lark, "a count");
    for (*out = 0; peek(lark) >= '0' && peek(lark) <= '9'; lark->at++)
        *out = *out > EBNF_REPEAT_MAX ? *out : *out * 10 + (uint32_t)(peek(lark) - '0');
    skip_blanks(lark);
    return *out <= EBNF_REPEAT_MAX || ebnf_fail(lark->tree, "a count is above %d", EBNF_REPEAT_MAX);
}

// ~ n and ~ n..m, or {n}, {n,}, {,m} and {n,m}; behind the first character.
static bool read_counts(struct lark *lark, bool braces, uint32_t *low, uint32_t *high)
{
    const char *between = braces ? "," : "..";
    skip_blanks(lark);
    *low = 0;
    if (!(braces && peek(lark) == ',') && !read_count(lark, low))
        return false;
    *high = *low;
    if (take(lark, between)) {
        skip_blanks(lark);
        *high = RULES_UNBOUNDED;
        if (!(braces && peek(lark) == '}') && !read_count(lark, high))
            return false;
    }
    if (braces && !take(lark, "}"))
        return fail_found(lark, "the } of a count");
    return *low <= *high || ebnf_fail(lark->tree, "a count runs backwards");
}

static uint32_t read_repeated(struct lark *lark)
{
    uint32_t node = read_atom(lark), low = 0, high = RULES_UNBOUNDED;
    if (node == EBNF_NONE)
        return node;
    skip_blanks(lark);
    if (take(lark, "+"))
        low = 1;
    else if (take(lark, "?"))
        high = 1;
    else if (peek(lark) == '~' || peek(lark) == '{') {
        bool braces = peek(lark) == '{';
        lark->at++;
        if (!read_counts(lark, braces, &low, &high))
            return EBNF_NONE;
    } else if (!take(lark, "*")) {
        return node;
    }
    return ebnf_repeat(lark->tree, node, low, high);
}

static bool sequence_ends(const struct lark *lark)
{
    char c = peek(lark);
    return c == '|' || (lark->depth && (c == ')' || c == ']')) || ends_rule(lark) || starts_with(lark, "->");
}

static uint32_t read_sequence(struct lark *lark)
{
    uint32_t begin = ebnf_begin(lark->tree);
    for (skip_space(lark); !sequence_ends(lark); skip_space(lark))
        if (!ebnf_add(lark->tree, read_repeated(lark)))
            return EBNF_NONE;
    if (take(lark, "->")) { // what the node of a syntax tree would be called
        skip_blanks(lark);
        if (!take_name(lark).len)
            return fail_found(lark, "a name behind ->"), EBNF_NONE;
        skip_space(lark);
    }
    return ebnf_end(lark->tree, begin, EBNF_SEQUENCE);
}

static uint32_t read_alternatives(struct lark *lark)
{
    uint32_t begin = ebnf_begin(lark->tree);
    skip_space(lark);
    take(lark, "|"); // the first alternative may begin with one
    do {
        if (!ebnf_add(lark->tree, read_sequence(lark)))
            return EBNF_NONE;
    } while (take(lark, "|"));
    return ebnf_end(lark->tree, begin, EBNF_CHOICE);
}

// ---- %import --------------------------------------------------------------------------------------------------------

static bool read_imported(struct lark *lark, bool renamed)
{
    skip_space(lark);
    struct bytes name = take_name(lark), as = name;
    if (!name.len)
        return fail_found(lark, "the name of a terminal");
    skip_blanks(lark);
    if (renamed && take(lark, "->")) {
        skip_blanks(lark);
        as = take_name(lark);
    }
    if (!as.len)
        return fail_found(lark, "a name behind ->");
    return lark_import(lark->tree, name, as);
}

// %import common.X, %import common.X -> Y, %import common (X, Y)
static bool read_import(struct lark *lark)
{
    skip_blanks(lark);
    if (!take(lark, "common"))
        return ebnf_fail(lark->tree, "only terminals of \"common\" can be imported; define others in the grammar");
    if (take(lark, "."))
        return read_imported(lark, true);
    skip_blanks(lark);
    if (!take(lark, "("))
        return fail_found(lark, ". or ( behind common");
    do {
        if (!read_imported(lark, false))
            return false;
        skip_space(lark);
    } while (take(lark, ","));
    return take(lark, ")") || fail_found(lark, "the ) of a list of imports");
}

// ---- %ignore --------------------------------------------------------------------------------------------------------

static bool read_ignore(struct lark *lark)
{
    lark->in_terminal = true;
    uint32_t node = read_alternatives(lark);
    lark->in_terminal = false;
    if (node == EBNF_NONE)
        return false;
    MEMORY_RESERVE(lark->ignored, lark->ignored_count, lark->ignored_capacity);
    lark->ignored[lark->ignored_count++] = node;
    return true;
}

// (one | another)*, or nothing.
static bool define_ignored(struct lark *lark)
{
    struct ebnf *tree = lark->tree;
    uint32_t begin = ebnf_begin(tree), rule = ebnf_rule(tree, bytes_of(skipped_rule)), body;
    for (size_t i = 0; i < lark->ignored_count; i++)
        ebnf_add(tree, lark->ignored[i]);
    body = ebnf_end(tree, begin, EBNF_CHOICE);
    if (lark->ignored_count)
        body = ebnf_repeat(tree, body, 0, RULES_UNBOUNDED);
    return ebnf_define(tree, rule, tree->line, body);
}

// ---- rules ----------------------------------------------------------------------------------------------------------

// llguidance's attributes of a rule. `capture` marks what its client reads from the answer, and changes no answer.
static bool check_attributes(struct lark *lark, size_t end, size_t colon)
{
    struct lark ahead = *lark;
    ahead.at = end;
    if (peek(&ahead) != '[')
        return true;
    do {
        ahead.at++;
        skip_blanks(&ahead);
        struct bytes name = take_name(&ahead);
        if (!bytes_equal(name, bytes_of("capture")))
            return ebnf_fail(lark->tree, "the attribute %.*s of a rule is not supported; capture is",
                             name.len > 40 ? 40 : (int)name.len, name.data);
        while (ahead.at < colon && !strchr(",]", peek(&ahead)))
            ahead.at++;
    } while (peek(&ahead) == ',');
    return true;
}

static bool read_directive(struct lark *lark)
{
    if (take(lark, "%llguidance {}")) // the notation's name, without options
        return true;
    if (take(lark, "%import"))
        return read_import(lark);
    if (take(lark, "%ignore"))
        return read_ignore(lark);
    lark->at++;
    struct bytes name = take_name(lark);
    return ebnf_fail(lark->tree, "%%%.*s is not supported; %%import and %%ignore are",
                     name.len > 40 ? 40 : (int)name.len, name.data);
}

static bool read_rule(struct lark *lark)
{
    size_t begin, end, colon;
    uint32_t line = lark->tree->line;
    if (!begins_rule(lark, &begin, &end, &colon))
        return fail_found(lark, "a rule: name: ...");
    struct bytes name = { lark->text.data + begin, end - begin };
    if (!check_attributes(lark, end, colon))
        return false;
    uint32_t rule = ebnf_rule(lark->tree, name);
    lark->at = colon + 1;
    lark->in_terminal = is_terminal(name);
    if (lark->first == EBNF_NONE && !lark->in_terminal)
        lark->first = rule;
    bool ok = ebnf_define(lark->tree, rule, line, read_alternatives(lark));
    lark->in_terminal = false;
    return ok;
}

bool lark_read(struct ebnf *tree, struct bytes text)
{
    struct lark lark = { .tree = tree, .text = text, .first = EBNF_NONE };
    int64_t start;
    bool ok = true;
    tree->line = 1;
    for (skip_space(&lark); ok && !at_end(&lark); skip_space(&lark))
        ok = peek(&lark) == '%' ? read_directive(&lark) : read_rule(&lark);
    ok = ok && define_ignored(&lark);
    free(lark.ignored);
    if (!ok)
        return false;
    tree->line = 0;
    tree->root = map_get(&tree->names, bytes_of("start"), &start) ? (uint32_t)start : lark.first;
    return tree->root != EBNF_NONE
        || ebnf_fail(tree, "the grammar has no rule; write \"name ::= ...\" or \"start: ...\"");
}

bool lark_is_likely(struct bytes text)
{
    bool at_start = true; // of a line, or behind its first name
    for (size_t i = 0; i < text.len; i++) {
        if (at_start && bytes_start_with(bytes_from(text, i), bytes_of("::=")))
            return false;
        char c = text.data[i];
        at_start = c == '\n' || (at_start && (is_name_byte(c) || c == '.' || c == ' ' || c == '\t' || c == '\r'));
    }
    return true;
}
