// SPDX-License-Identifier: Apache-2.0
// Whole grammars: of a schema, of a regex, of a grammar's text, or of tool calls (alternatives of literals and schemas,
// as a prefix tree).
#include <stdlib.h>
#include <string.h>

#include "text/grammar/ebnf.h"
#include "text/grammar/pattern.h"
#include "text/grammar/schema.h"

static struct grammar *finish(struct grammar *grammar, uint32_t root, struct error *err)
{
    if (rules_finish(grammar, root, err))
        return grammar;
    grammar_free(grammar);
    return NULL;
}

struct grammar *grammar_from_schema(const json_t *schema, struct error *err)
{
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    return finish(grammar, schema_compile(grammar, schema, err), err);
}

struct grammar *grammar_from_compact_schema(const json_t *schema, struct error *err)
{
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    grammar->compact = true;
    return finish(grammar, schema_compile(grammar, schema, err), err);
}

const char *grammar_unenforced(const struct grammar *grammar)
{
    return grammar->unenforced.len ? grammar->unenforced.data : NULL;
}

const char *grammar_unsupported(const struct grammar *grammar)
{
    return grammar->unsupported.len ? grammar->unsupported.data : NULL;
}

struct grammar *grammar_from_pattern(struct bytes pattern, struct error *err)
{
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    struct dfa dfa = { 0 };
    uint32_t root = RULES_NONE;
    if (pattern_compile(pattern, PATTERN_WHOLE, false, &grammar->work, &dfa, NULL, err)) {
        if (dfa.count)
            root = rules_dfa(grammar, &dfa, err);
        else
            fail(err, "it cannot be met: no text has that pattern");
    }
    return finish(grammar, root, err);
}

// ---- texts and structural tags ----

// Rules that the root does not lead to, for the log.
static void note_unused(struct grammar *grammar, const struct ebnf *tree)
{
    for (uint32_t r = 0; r < tree->rule_count && !grammar->notice.len; r++)
        if (!tree->rules[r].used && tree->rules[r].name.data[0] != '%')
            strbuf_add_format(&grammar->notice, "the rule \"%.60s\" of line %u is never used", tree->rules[r].name.data,
                              tree->rules[r].line);
}

static struct grammar *from_tree(struct ebnf *tree, bool read, struct error *err)
{
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    uint32_t root = RULES_NONE;
    if (read && ebnf_check(tree)) {
        note_unused(grammar, tree);
        root = ebnf_compile(tree, grammar);
    }
    ebnf_free(tree);
    return finish(grammar, root, err);
}

struct grammar *grammar_from_text(struct bytes text, struct error *err)
{
    struct ebnf tree = { .err = err };
    bool read = text.len <= EBNF_BYTES_MAX
        || fail(err, "it has %zu bytes, and %d is the limit", text.len, EBNF_BYTES_MAX);
    read = read && (lark_is_likely(text) ? lark_read(&tree, text) : gbnf_read(&tree, text));
    return from_tree(&tree, read, err);
}

struct grammar *grammar_from_structural_tag(const json_t *tag, struct error *err)
{
    struct ebnf tree = { .err = err };
    return from_tree(&tree, structural_tag_read(&tree, tag), err);
}

const char *grammar_notice(const struct grammar *grammar) { return grammar->notice.len ? grammar->notice.data : NULL; }

// ---- parts --------------------------------------------------------------------------------------------------------

static bool is_same(const struct grammar_part *a, const struct grammar_part *b)
{
    return a->mark == b->mark && a->schema == b->schema && a->parameters == b->parameters && a->pattern == b->pattern
        && (a->literal == b->literal || (a->literal && b->literal && strcmp(a->literal, b->literal) == 0));
}

static uint32_t compile_pattern(struct grammar *grammar, const char *pattern, struct error *err)
{
    struct dfa dfa = { 0 };
    if (!pattern_compile(bytes_of(pattern), PATTERN_WHOLE, false, &grammar->work, &dfa, NULL, err))
        return RULES_NONE;
    return rules_dfa(grammar, &dfa, err);
}

// Anything but a literal.
static uint32_t compile_part(struct grammar *grammar, const struct grammar_alternative *alternative, int at,
                             struct error *err)
{
    const struct grammar_part *part = &alternative->parts[at];
    if (part->pattern)
        return compile_pattern(grammar, part->pattern, err);
    if (part->parameters)
        return parameters_compile(grammar, part->parameters, err);
    return part->schema ? schema_compile(grammar, part->schema, err)
                        : rules_mark(grammar, part->mark, at > 0, at + 1 < alternative->count, err);
}

// Sorts alternatives with the same part at `at` to the front; returns how many have it.
static int gather_alike(const struct grammar_alternative **alternatives, int count, int at)
{
    int alike = 1;
    for (int i = 1; i < count; i++) {
        const struct grammar_alternative *other = alternatives[i];
        if (!is_same(&alternatives[0]->parts[at], &other->parts[at]))
            continue;
        alternatives[i] = alternatives[alike];
        alternatives[alike++] = other;
    }
    return alike;
}

// A node of the prefix tree: `count` alternatives that are equal up to part `at`.
struct prefix {
    const struct grammar_alternative **alternatives;
    int count, at;
};

// Whether the alternative ends there; false with a sentence when another one goes on.
static bool check_end(const struct prefix *prefix, bool *ends, struct error *err)
{
    *ends = prefix->count == 1 && prefix->at && prefix->alternatives[0]->count == prefix->at;
    for (int i = 0; i < prefix->count && !*ends; i++)
        if (prefix->alternatives[i]->count == prefix->at)
            return fail(err,
                        prefix->at ? "two alternatives begin alike, and one of them ends there"
                                   : "an alternative without any text");
    return true;
}

static bool compile_rest(struct grammar *grammar, struct prefix prefix, uint32_t *out, struct error *err);

// The alternatives behind the prefix: one branch for each different part; literals are one table of words, so that
// matching follows one thread instead of one per alternative. RULES_NONE with a sentence when a limit is passed.
static uint32_t compile_prefix(struct grammar *grammar, const struct prefix *prefix, struct word *words,
                               uint32_t *nodes, struct error *err)
{
    uint32_t word_count = 0, rest;
    size_t node_count = 0;
    for (int i = 0, alike; i < prefix->count; i += alike) {
        const struct grammar_alternative **first = prefix->alternatives + i;
        const struct grammar_part *part = &first[0]->parts[prefix->at];
        alike = gather_alike(first, prefix->count - i, prefix->at);
        if (!compile_rest(grammar, (struct prefix){ first, alike, prefix->at + 1 }, &rest, err))
            return RULES_NONE;
        if (part->literal) {
            words[word_count] = (struct word){ bytes_of(part->literal), word_count, rest };
            word_count++;
        } else {
            uint32_t node = compile_part(grammar, first[0], prefix->at, err);
            nodes[node_count++] = rest == RULES_NONE ? node : rules_sequence(grammar, node, rest, err);
        }
    }
    if (word_count)
        nodes[node_count++] = rules_words(grammar, words, word_count, err);
    return rules_choice(grammar, nodes, node_count, err);
}

// As compile_prefix; RULES_NONE without a sentence where they end.
static bool compile_rest(struct grammar *grammar, struct prefix prefix, uint32_t *out, struct error *err)
{
    bool ends;
    *out = RULES_NONE;
    if (!check_end(&prefix, &ends, err))
        return false;
    if (ends)
        return true;
    struct word *words = memory_new((size_t)prefix.count, sizeof *words);
    uint32_t *nodes = memory_new((size_t)prefix.count + 1, sizeof *nodes);
    *out = compile_prefix(grammar, &prefix, words, nodes, err);
    free(words);
    free(nodes);
    return *out != RULES_NONE;
}

static uint32_t compile_alternatives(struct grammar *grammar, const struct grammar_parts *parts, struct error *err)
{
    const struct grammar_alternative **alternatives = memory_new((size_t)parts->count, sizeof *alternatives);
    uint32_t node;
    for (int i = 0; i < parts->count; i++)
        alternatives[i] = &parts->alternatives[i];
    compile_rest(grammar, (struct prefix){ alternatives, parts->count, 0 }, &node, err);
    free(alternatives);
    return node;
}

struct grammar *grammar_from_parts(const struct grammar_parts *parts, struct error *err)
{
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    uint32_t ways[] = { compile_alternatives(grammar, parts, err), RULES_NONE };
    if (ways[0] != RULES_NONE && parts->separator) {
        bool separated = *parts->separator;
        uint32_t between = separated ? rules_literal(grammar, bytes_of(parts->separator), err) : RULES_NONE;
        bool ok = !separated || between != RULES_NONE;
        ways[0] = ok ? rules_repeat(grammar, ways[0], between, 1, RULES_UNBOUNDED, err) : RULES_NONE;
    }
    if (ways[0] != RULES_NONE && parts->before && *parts->before)
        ways[0] = rules_sequence(grammar, rules_literal(grammar, bytes_of(parts->before), err), ways[0], err);
    if (ways[0] != RULES_NONE && parts->behind && *parts->behind)
        ways[0] = rules_sequence(grammar, ways[0], rules_literal(grammar, bytes_of(parts->behind), err), err);
    if (ways[0] != RULES_NONE && parts->otherwise) {
        ways[1] = schema_compile(grammar, parts->otherwise, err);
        ways[0] = rules_choice(grammar, ways, 2, err);
    }
    return finish(grammar, ways[0], err);
}
