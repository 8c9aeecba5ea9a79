// SPDX-License-Identifier: Apache-2.0
// Reader of GBNF (llama.cpp) and of the EBNF that grew out of it (XGrammar, SGLang, vLLM): `name ::= alternatives`. A
// rule ends where the next one begins, at the start of a line.
#include "text/grammar/notation.h"

// The end of a name; a dot belongs to it between two of its letters.
static size_t name_end(const struct reader *reader)
{
    size_t at = reader->at;
    const char *text = reader->text.data;
    while (at < reader->text.len
           && (notation_is_name(text[at])
               || (text[at] == '.' && at > reader->at && at + 1 < reader->text.len && notation_is_name(text[at + 1]))))
        at++;
    return at;
}

static struct bytes take_name(struct reader *reader)
{
    struct bytes name = { reader->text.data + reader->at, name_end(reader) - reader->at };
    reader->at += name.len;
    return name;
}

static bool begins_rule(const struct reader *reader)
{
    struct reader ahead = *reader;
    ahead.at = name_end(reader);
    notation_skip_blanks(&ahead);
    return name_end(reader) > reader->at && starts_with(&ahead, "::=");
}

static bool ends_sequence(const struct reader *reader)
{
    char c = peek(reader);
    return at_end(reader) || c == '|' || (c == ')' && reader->depth) || begins_rule(reader);
}

// ---- parts ----------------------------------------------------------------------------------------------------------

static uint32_t read_text(struct reader *reader)
{
    struct strbuf text = { 0 };
    uint32_t node = notation_quoted(reader, '"', &text) ? ebnf_text(reader->tree, strbuf_bytes(&text)) : EBNF_NONE;
    strbuf_free(&text);
    return node;
}

static uint32_t read_class(struct reader *reader)
{
    struct character_class class = { .count = 0 };
    bool negated;
    if (!notation_class(reader, &class, &negated))
        return EBNF_NONE;
    if (negated && !class_negate(&class, 1, CODEPOINT_MAX))
        return ebnf_fail(reader->tree, "a character class has more than %d ranges", CLASS_RANGES_MAX), EBNF_NONE;
    return ebnf_class(reader->tree, class.ranges, class.count);
}

static uint32_t read_name(struct reader *reader)
{
    static const char *const tokens[] = { "TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch" };
    struct bytes name = take_name(reader);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && peek(reader) == '('; i++)
        if (bytes_equal(name, bytes_of(tokens[i])))
            return ebnf_fail(reader->tree, "%s(...) is not supported; use a structural_tag", tokens[i]), EBNF_NONE;
    return ebnf_reference(reader->tree, name);
}

static uint32_t read_atom(struct reader *reader)
{
    struct range any = { 1, CODEPOINT_MAX };
    char c = peek(reader);
    if (take(reader, "\""))
        return read_text(reader);
    if (take(reader, "["))
        return read_class(reader);
    if (take(reader, "("))
        return notation_group(reader, ")");
    if (take(reader, "."))
        return ebnf_class(reader->tree, &any, 1);
    if (notation_is_name(c))
        return read_name(reader);
    if (c == '<' || c == '!')
        return ebnf_fail(reader->tree, "tokens (<...> and !<...>) cannot be named; write their text in quotes"),
               EBNF_NONE;
    return notation_fail_found(reader, "a text in quotes, a [class], a (group) or the name of a rule"), EBNF_NONE;
}

static const struct notation gbnf = {
    .name = "grammar",
    .comment = "#",
    .repeats = "*+?{",
    .controls = "n\nr\rt\tf\fv\vb\ba\ae\033"
                "0\0",
    .escapes = "\"'\\/[]^$.*+?(){}|-",
    .stacked_max = 8,
    .skip_space = notation_skip_space,
    .skip_blanks = notation_skip_space,
    .read_atom = read_atom,
    .ends_sequence = ends_sequence,
};

// ---- rules ----------------------------------------------------------------------------------------------------------

static bool is_first_of_line(const struct reader *reader)
{
    size_t at = reader->at;
    while (at && (reader->text.data[at - 1] == ' ' || reader->text.data[at - 1] == '\t'))
        at--;
    return !at || reader->text.data[at - 1] == '\n' || reader->text.data[at - 1] == '\r';
}

static bool read_rule(struct reader *reader)
{
    uint32_t line = reader->tree->line;
    if (!begins_rule(reader))
        return notation_fail_found(reader, "a rule: name ::= ...");
    if (!is_first_of_line(reader))
        return ebnf_fail(reader->tree, "a rule begins within a line; begin it on a line of its own");
    uint32_t rule = ebnf_rule(reader->tree, take_name(reader));
    notation_skip_blanks(reader);
    take(reader, "::=");
    return ebnf_define(reader->tree, rule, line, notation_alternatives(reader));
}

bool gbnf_read(struct ebnf *tree, struct bytes text)
{
    struct reader reader = { .tree = tree, .text = text, .notation = &gbnf };
    int64_t root;
    tree->line = 1;
    for (notation_skip_space(&reader); !at_end(&reader); notation_skip_space(&reader))
        if (!read_rule(&reader))
            return false;
    tree->line = 0;
    if (!map_get(&tree->names, bytes_of("root"), &root))
        return ebnf_fail(tree, "the grammar has no rule named root");
    tree->root = (uint32_t)root;
    return true;
}
