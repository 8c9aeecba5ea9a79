// SPDX-License-Identifier: Apache-2.0
// Direct left recursion, as Lark grammars have it, becomes a repetition: R ::= R "+" T | T is T ( "+" T )*. Where a
// recursive alternative also ends with R, that end becomes one of the others, so that the repetition is the only way.
#include "text/grammar/ebnf.h"

#include <stdio.h>

static bool is_reference(const struct ebnf *tree, uint32_t node, uint32_t rule)
{
    return tree->nodes[node].kind == EBNF_RULE && tree->nodes[node].first == rule;
}

static bool begins_with(const struct ebnf *tree, uint32_t node, uint32_t rule)
{
    const struct ebnf_node *alternative = &tree->nodes[node];
    return alternative->kind == EBNF_SEQUENCE && is_reference(tree, tree->links[alternative->first], rule);
}

// The alternatives that begin with the rule, or those that do not, as a choice; EBNF_NONE with a sentence.
static uint32_t choose(struct ebnf *tree, uint32_t rule, bool recursive, struct bytes base)
{
    struct ebnf_node choice = tree->nodes[tree->rules[rule].body];
    uint32_t ways = ebnf_begin(tree);
    for (uint32_t i = 0; i < choice.count; i++) {
        uint32_t alternative = tree->links[choice.first + i];
        if (begins_with(tree, alternative, rule) != recursive)
            continue;
        if (recursive) {
            struct ebnf_node sequence = tree->nodes[alternative];
            uint32_t begin = ebnf_begin(tree);
            for (uint32_t k = 1; k < sequence.count; k++) {
                uint32_t entry = tree->links[sequence.first + k];
                bool again = k + 1 == sequence.count && k > 1 && is_reference(tree, entry, rule);
                if (!ebnf_add(tree, again ? ebnf_reference(tree, base) : entry))
                    return EBNF_NONE;
            }
            alternative = ebnf_end(tree, begin, EBNF_SEQUENCE);
        }
        if (!ebnf_add(tree, alternative))
            return EBNF_NONE;
    }
    return ebnf_end(tree, ways, EBNF_CHOICE);
}

static bool loop(struct ebnf *tree, uint32_t rule)
{
    char name[32];
    uint32_t line = tree->line = tree->rules[rule].line;
    snprintf(name, sizeof name, "%%base %u", rule);
    uint32_t base = ebnf_rule(tree, bytes_of(name));
    uint32_t begins = choose(tree, rule, false, bytes_of(name)), goes_on = choose(tree, rule, true, bytes_of(name));
    uint32_t begin = ebnf_begin(tree);
    if (!ebnf_define(tree, base, line, begins) || !ebnf_add(tree, ebnf_reference(tree, bytes_of(name)))
        || !ebnf_add(tree, ebnf_repeat(tree, goes_on, 0, RULES_UNBOUNDED)))
        return false;
    uint32_t body = ebnf_end(tree, begin, EBNF_SEQUENCE);
    tree->rules[rule].body = body;
    return body != EBNF_NONE;
}

bool ebnf_loop_left(struct ebnf *tree)
{
    uint32_t count = tree->rule_count;
    for (uint32_t r = 0; r < count; r++) {
        const struct ebnf_node *body = &tree->nodes[tree->rules[r].body];
        uint32_t recursive = 0;
        for (uint32_t i = 0; i < body->count && body->kind == EBNF_CHOICE; i++)
            recursive += begins_with(tree, tree->links[body->first + i], r);
        if (recursive && recursive < body->count && !loop(tree, r))
            return false;
    }
    return true;
}
