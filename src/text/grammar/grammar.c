// SPDX-License-Identifier: Apache-2.0
// Whole grammars: a schema alone, or texts and schemas in a row.
#include <assert.h>
#include <stdlib.h>

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

struct grammar *grammar_json_object(void)
{
    struct error err;
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    grammar = finish(grammar, schema_any_object(grammar, schema_any(grammar, &err), &err), &err);
    assert(grammar);
    return grammar;
}

struct grammar *grammar_from_pattern(struct bytes pattern, struct error *err)
{
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    struct machine machine = { 0 };
    uint32_t root = RULES_NONE;
    if (pattern_compile(pattern, PATTERN_WHOLE, false, &grammar->work, &machine, err)) {
        if (machine.count)
            root = rules_machine(grammar, &machine, err);
        else
            fail(err, "it cannot be met: no text has that pattern");
    }
    return finish(grammar, root, err);
}

static bool is_empty(const struct grammar_part *part)
{
    return !part->schema && !(part->literal && *part->literal);
}

static uint32_t compile_part(struct grammar *grammar, const struct grammar_part *part, struct error *err)
{
    return part->schema ? schema_compile(grammar, part->schema, err)
                        : rules_literal(grammar, bytes_of(part->literal), err);
}

// The parts from `first` on, one after the other; RULES_NONE without a failure when there are none.
static uint32_t compile_parts(struct grammar *grammar, const struct grammar_alternative *alternative, int first,
                              bool *ok, struct error *err)
{
    uint32_t node = RULES_NONE;
    for (int i = alternative->count - 1; *ok && i >= first; i--) {
        if (is_empty(&alternative->parts[i]))
            continue;
        uint32_t part = compile_part(grammar, &alternative->parts[i], err);
        node = node == RULES_NONE ? part : rules_sequence(grammar, part, node, err);
        *ok = node != RULES_NONE;
    }
    return node;
}

// An alternative that begins with a text becomes a word with its rest behind it, so that alternatives are told apart
// byte by byte and not all followed at once. The same text again: its rest is one more choice behind that word.
static bool add_beginning(struct grammar *grammar, struct word *words, uint32_t *count, struct bytes text,
                          uint32_t rest, struct error *err)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (!bytes_equal(words[i].text, text))
            continue;
        if (words[i].next == RULES_NONE || rest == RULES_NONE)
            return fail(err, "two alternatives begin alike, and one of them ends there");
        uint32_t both[] = { words[i].next, rest };
        words[i].next = rules_choice(grammar, both, 2, err);
        return words[i].next != RULES_NONE;
    }
    words[*count] = (struct word){ text, *count, rest };
    ++*count;
    return true;
}

static uint32_t compile_alternatives(struct grammar *grammar, const struct grammar_alternative *alternatives, int count,
                                     struct word *words, uint32_t *nodes, struct error *err)
{
    uint32_t word_count = 0;
    size_t node_count = 0;
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        const struct grammar_alternative *alternative = &alternatives[i];
        int first = 0;
        while (first < alternative->count && is_empty(&alternative->parts[first]))
            first++;
        if (first == alternative->count)
            return fail(err, "an alternative without any text"), RULES_NONE;
        const struct grammar_part *part = &alternative->parts[first];
        uint32_t node = compile_parts(grammar, alternative, first + !part->schema, &ok, err);
        if (ok && part->schema)
            nodes[node_count++] = node;
        else if (ok)
            ok = add_beginning(grammar, words, &word_count, bytes_of(part->literal), node, err);
    }
    if (ok && word_count)
        nodes[node_count++] = rules_words(grammar, words, word_count, err);
    return ok ? rules_choice(grammar, nodes, node_count, err) : RULES_NONE;
}

struct grammar *grammar_from_parts(const struct grammar_alternative *alternatives, int count, bool repeat,
                                   const char *separator, struct error *err)
{
    struct grammar *grammar = memory_new(1, sizeof *grammar);
    struct word *words = memory_new((size_t)count, sizeof *words);
    uint32_t *nodes = memory_new((size_t)count + 1, sizeof *nodes);
    uint32_t root = compile_alternatives(grammar, alternatives, count, words, nodes, err);
    free(words);
    free(nodes);
    if (repeat && root != RULES_NONE) {
        uint32_t between = RULES_NONE;
        if (separator && *separator && (between = rules_literal(grammar, bytes_of(separator), err)) == RULES_NONE)
            root = RULES_NONE;
        else
            root = rules_repeat(grammar, root, between, 1, RULES_UNBOUNDED, err);
    }
    return finish(grammar, root, err);
}
