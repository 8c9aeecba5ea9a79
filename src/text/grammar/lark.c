// SPDX-License-Identifier: Apache-2.0
// Reader of Lark grammars, which vLLM and llguidance take: rules, TERMINALS, "texts", /regexes/, ranges, repetitions,
// %import of common terminals and %ignore. Terminals are not lexed apart from one another (as with Lark's
// lexer='dynamic_complete'): an answer is any text that some division into terminals explains.
#include <stdlib.h>

#include "base/utf8.h"
#include "text/grammar/notation.h"
#include "text/grammar/regex.h"

struct lark {
    struct reader reader;
    bool in_terminal;  // within its definition nothing is ignored
    uint32_t *ignored; // terminals
    size_t ignored_count, ignored_capacity;
    uint32_t first; // the first rule
};

static struct lark *lark_of(struct reader *reader) { return (struct lark *)reader; }

static const struct regex_style python = { .ecma = false }; // the spelling of regexes

static const char skipped_rule[] = "%ignore"; // no name of the text's

// ---- names ----------------------------------------------------------------------------------------------------------

static bool begins_name(char c) { return c == '_' || (c > '9' && notation_is_name(c)); }

static struct bytes take_name(struct reader *reader)
{
    size_t begin = reader->at;
    if (begins_name(peek(reader)))
        while (notation_is_name(peek(reader)) && !starts_with(reader, "->"))
            reader->at++;
    return (struct bytes){ reader->text.data + begin, reader->at - begin };
}

static int shown(struct bytes name) { return name.len > 60 ? 60 : (int)name.len; } // of a name in a sentence

static bool is_terminal(struct bytes name)
{
    while (name.len && *name.data == '_')
        name = bytes_from(name, 1);
    return name.len && *name.data >= 'A' && *name.data <= 'Z';
}

// Does `name:`, `?name:`, `!name:`, `name.priority:` or `name[attributes]:` stand here? Then its name ends at *end, the
// colon at *colon.
static bool begins_rule(const struct reader *reader, size_t *begin, size_t *end, size_t *colon)
{
    struct reader ahead = *reader;
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
    notation_skip_blanks(&ahead);
    *colon = ahead.at;
    return peek(&ahead) == ':';
}

static bool ends_sequence(const struct reader *reader)
{
    size_t begin, end, colon;
    char c = peek(reader);
    return at_end(reader) || c == '|' || c == '%' || (reader->depth && (c == ')' || c == ']'))
        || starts_with(reader, "->") || begins_rule(reader, &begin, &end, &colon);
}

// -> what the node of a syntax tree would be called.
static bool end_sequence(struct reader *reader)
{
    if (!take(reader, "->"))
        return true;
    notation_skip_blanks(reader);
    if (!take_name(reader).len)
        return notation_fail_found(reader, "a name behind ->");
    notation_skip_space(reader);
    return true;
}

// ---- terminals ------------------------------------------------------------------------------------------------------

// "text"i: each ASCII letter in either case.
static uint32_t either_case(struct reader *reader, struct bytes text)
{
    uint32_t begin = ebnf_begin(reader->tree);
    for (size_t i = 0; i < text.len; i++) {
        uint32_t lower = (uint8_t)text.data[i] | 0x20u;
        bool letter = lower >= 'a' && lower <= 'z';
        struct range cases[] = { { lower, lower }, { lower ^ 0x20, lower ^ 0x20 } };
        uint32_t node = letter ? ebnf_class(reader->tree, cases, 2)
                               : ebnf_text(reader->tree, (struct bytes){ text.data + i, 1 });
        if (!ebnf_add(reader->tree, node))
            return EBNF_NONE;
    }
    return ebnf_end(reader->tree, begin, EBNF_SEQUENCE);
}

// "a".."z", behind the dots.
static uint32_t read_range(struct reader *reader, struct bytes low)
{
    struct strbuf high = { 0 };
    struct range range = { 0, 0 };
    uint32_t node = EBNF_NONE;
    notation_skip_blanks(reader);
    char quote = peek(reader);
    if (!take(reader, "\"") && !take(reader, "'"))
        return notation_fail_found(reader, "the text that a range ends with"), EBNF_NONE;
    if (notation_quoted(reader, quote, &high)) {
        bool single = utf8_decode(low, &range.low) == low.len && low.len
            && utf8_decode(strbuf_bytes(&high), &range.high) == high.len && high.len;
        if (single && range.low <= range.high)
            node = ebnf_class(reader->tree, &range, 1);
        else
            ebnf_fail(reader->tree, "a range goes from one character to another that is not before it");
    }
    strbuf_free(&high);
    return node;
}

static uint32_t read_text(struct reader *reader, char quote)
{
    struct strbuf text = { 0 };
    uint32_t node = EBNF_NONE;
    if (notation_quoted(reader, quote, &text)) {
        if (take(reader, ".."))
            node = read_range(reader, strbuf_bytes(&text));
        else if (take(reader, "i"))
            node = either_case(reader, strbuf_bytes(&text));
        else
            node = ebnf_text(reader->tree, strbuf_bytes(&text));
    }
    strbuf_free(&text);
    return node;
}

// /regex/flags, behind the first slash.
static uint32_t read_regex(struct reader *reader)
{
    size_t begin = reader->at;
    while (!at_end(reader) && peek(reader) != '/' && peek(reader) != '\n')
        reader->at += peek(reader) == '\\' && reader->at + 1 < reader->text.len ? 2 : 1;
    struct bytes pattern = { reader->text.data + begin, reader->at - begin };
    if (at_end(reader) || !take(reader, "/"))
        return ebnf_fail(reader->tree, "a regex is not closed in its line by a /"), EBNF_NONE;
    size_t flags = reader->at;
    while (peek(reader) >= 'a' && peek(reader) <= 'z')
        reader->at++;
    return regex_read(reader->tree, pattern, (struct bytes){ reader->text.data + flags, reader->at - flags }, &python);
}

// A terminal of a rule, with what is ignored behind it.
static uint32_t skip_behind(struct reader *reader, uint32_t terminal)
{
    struct ebnf *tree = reader->tree;
    uint32_t begin = ebnf_begin(tree);
    if (lark_of(reader)->in_terminal || terminal == EBNF_NONE)
        return terminal;
    if (!ebnf_add(tree, terminal) || !ebnf_add(tree, ebnf_reference(tree, bytes_of(skipped_rule))))
        return EBNF_NONE;
    return ebnf_end(tree, begin, EBNF_SEQUENCE);
}

// ---- atoms ----------------------------------------------------------------------------------------------------------

static uint32_t read_name(struct reader *reader)
{
    struct bytes name = take_name(reader);
    if (peek(reader) == '{' && begins_name(peek_at(reader, 1)))
        return ebnf_fail(reader->tree, "templates (%.*s{...}) are not supported; write the rule out", shown(name),
                         name.data),
               EBNF_NONE;
    if (lark_of(reader)->in_terminal && !is_terminal(name))
        return ebnf_fail(reader->tree, "a terminal cannot hold the rule \"%.*s\"", shown(name), name.data), EBNF_NONE;
    uint32_t node = ebnf_reference(reader->tree, name);
    return is_terminal(name) ? skip_behind(reader, node) : node;
}

static uint32_t read_atom(struct reader *reader)
{
    char c = peek(reader);
    if (take(reader, "\"") || take(reader, "'"))
        return skip_behind(reader, read_text(reader, c));
    if (take(reader, "/"))
        return skip_behind(reader, read_regex(reader));
    if (take(reader, "("))
        return notation_group(reader, ")");
    if (take(reader, "["))
        return ebnf_repeat(reader->tree, notation_group(reader, "]"), 0, 1);
    if (begins_name(c))
        return read_name(reader);
    if (c == '<' || c == '@')
        return ebnf_fail(reader->tree, "%c...: tokens and other grammars cannot be named; write the text in quotes", c),
               EBNF_NONE;
    return notation_fail_found(reader, "a text in quotes, a /regex/, a (group) or a name"), EBNF_NONE;
}

static const struct notation lark_notation = {
    .name = "grammar",
    .comment = "//",
    .repeats = "*+?~{",
    .controls = "n\nr\rt\tf\fv\vb\ba\a",
    .escapes = "\\\"'/",
    .stacked_max = 1,
    .leading_bar = true,
    .skip_space = notation_skip_space,
    .skip_blanks = notation_skip_blanks,
    .read_atom = read_atom,
    .ends_sequence = ends_sequence,
    .end_sequence = end_sequence,
};

// ---- %import --------------------------------------------------------------------------------------------------------

// The terminals of Lark's grammar "common".
static const struct {
    const char *name, *regex;
} common[] = {
    { "DIGIT", "[0-9]" },
    { "HEXDIGIT", "[0-9a-fA-F]" },
    { "INT", "[0-9]+" },
    { "SIGNED_INT", "[+-]?[0-9]+" },
    { "DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+" },
    { "FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?" },
    { "SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)" },
    { "NUMBER", "([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?" },
    { "SIGNED_NUMBER", "[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?" },
    { "ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\"" },
    { "LCASE_LETTER", "[a-z]" },
    { "UCASE_LETTER", "[A-Z]" },
    { "LETTER", "[a-zA-Z]" },
    { "WORD", "[a-zA-Z]+" },
    { "CNAME", "[_a-zA-Z][_a-zA-Z0-9]*" },
    { "WS_INLINE", "[ \\t]+" },
    { "WS", "[ \\t\\f\\r\\n]+" },
    { "CR", "\\r" },
    { "LF", "\\n" },
    { "NEWLINE", "(\\r?\\n)+" },
    { "SH_COMMENT", "#[^\\n]*" },
    { "CPP_COMMENT", "//[^\\n]*" },
    { "C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/" },
    { "SQL_COMMENT", "--[^\\n]*" },
};

static bool import(struct reader *reader, struct bytes name, struct bytes as)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (bytes_equal(name, bytes_of(common[i].name)))
            return ebnf_define(reader->tree, ebnf_rule(reader->tree, as), reader->tree->line,
                               regex_read(reader->tree, bytes_of(common[i].regex), bytes_of(""), &python));
    return ebnf_fail(reader->tree, "common.%.*s is not known here; define the terminal in the grammar", shown(name),
                     name.data);
}

static bool read_imported(struct reader *reader, bool renamed)
{
    notation_skip_space(reader);
    struct bytes name = take_name(reader), as = name;
    if (!name.len)
        return notation_fail_found(reader, "the name of a terminal");
    notation_skip_blanks(reader);
    if (renamed && take(reader, "->")) {
        notation_skip_blanks(reader);
        as = take_name(reader);
    }
    if (!as.len)
        return notation_fail_found(reader, "a name behind ->");
    return import(reader, name, as);
}

// %import common.X, %import common.X -> Y, %import common (X, Y)
static bool read_import(struct reader *reader)
{
    notation_skip_blanks(reader);
    if (!take(reader, "common"))
        return ebnf_fail(reader->tree, "only terminals of \"common\" can be imported; define others in the grammar");
    if (take(reader, "."))
        return read_imported(reader, true);
    notation_skip_blanks(reader);
    if (!take(reader, "("))
        return notation_fail_found(reader, ". or ( behind common");
    do {
        if (!read_imported(reader, false))
            return false;
        notation_skip_space(reader);
    } while (take(reader, ","));
    return take(reader, ")") || notation_fail_found(reader, "the ) of a list of imports");
}

// ---- %ignore --------------------------------------------------------------------------------------------------------

static bool read_ignore(struct lark *lark)
{
    lark->in_terminal = true;
    uint32_t node = notation_alternatives(&lark->reader);
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
    struct ebnf *tree = lark->reader.tree;
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
    struct reader ahead = lark->reader;
    ahead.at = end;
    if (peek(&ahead) != '[')
        return true;
    do {
        ahead.at++;
        notation_skip_blanks(&ahead);
        struct bytes name = take_name(&ahead);
        if (!bytes_equal(name, bytes_of("capture")))
            return ebnf_fail(lark->reader.tree, "the attribute %.*s of a rule is not supported; capture is",
                             shown(name), name.data);
        while (ahead.at < colon && !strchr(",]", peek(&ahead)))
            ahead.at++;
    } while (peek(&ahead) == ',');
    return true;
}

static bool read_directive(struct lark *lark)
{
    if (take(&lark->reader, "%llguidance {}")) // the notation's name, without options
        return true;
    if (take(&lark->reader, "%import"))
        return read_import(&lark->reader);
    if (take(&lark->reader, "%ignore"))
        return read_ignore(lark);
    lark->reader.at++;
    struct bytes name = take_name(&lark->reader);
    return ebnf_fail(lark->reader.tree, "%%%.*s is not supported; %%import and %%ignore are", shown(name), name.data);
}

static bool read_rule(struct lark *lark)
{
    size_t begin, end, colon;
    uint32_t line = lark->reader.tree->line;
    if (!begins_rule(&lark->reader, &begin, &end, &colon))
        return notation_fail_found(&lark->reader, "a rule: name: ...");
    struct bytes name = { lark->reader.text.data + begin, end - begin };
    if (!check_attributes(lark, end, colon))
        return false;
    uint32_t rule = ebnf_rule(lark->reader.tree, name);
    lark->reader.at = colon + 1;
    lark->in_terminal = is_terminal(name);
    if (lark->first == EBNF_NONE && !lark->in_terminal)
        lark->first = rule;
    bool ok = ebnf_define(lark->reader.tree, rule, line, notation_alternatives(&lark->reader));
    lark->in_terminal = false;
    return ok;
}

bool lark_read(struct ebnf *tree, struct bytes text)
{
    struct lark lark = { .reader = { .tree = tree, .text = text, .notation = &lark_notation }, .first = EBNF_NONE };
    struct reader *reader = &lark.reader;
    int64_t start;
    bool ok = true;
    tree->line = 1;
    for (notation_skip_space(reader); ok && !at_end(reader); notation_skip_space(reader))
        ok = peek(reader) == '%' ? read_directive(&lark) : read_rule(&lark);
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
        at_start = c == '\n' || (at_start && (notation_is_name(c) || c == '.' || c == ' ' || c == '\t' || c == '\r'));
    }
    return true;
}
