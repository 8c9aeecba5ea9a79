// SPDX-License-Identifier: Apache-2.0
// From a syntax tree to a nondeterministic automaton over bytes (Thompson's construction).
#include "base/utf8.h"
#include "text/grammar/ebnf.h"

enum { NEST_MAX = 256 }; // nodes in one another

struct layout {
    const struct ebnf *tree;
    struct nfa *nfa;
    bool in_string;
    int depth;
};

static void lay_out(struct layout *layout, uint32_t id, uint32_t from, uint32_t to);

static void lay_out_text(struct layout *layout, const struct ebnf_node *node, uint32_t from, uint32_t to)
{
    struct bytes text = { layout->tree->texts.data + node->first, node->count };
    for (size_t len; text.len; text = bytes_from(text, len)) {
        struct range range = { (uint8_t)*text.data, (uint8_t)*text.data };
        uint32_t next = nfa_state(layout->nfa);
        len = layout->in_string ? utf8_decode(text, &range.low) : 1;
        range.high = range.low;
        if (layout->in_string)
            class_to_nfa(&range, 1, true, layout->nfa, from, next);
        else
            nfa_bytes(layout->nfa, from, next, (uint8_t)range.low, (uint8_t)range.high);
        from = next;
    }
    nfa_skip(layout->nfa, from, to);
}

static void lay_out_repeat(struct layout *layout, const struct ebnf_node *node, uint32_t from, uint32_t to)
{
    struct nfa *nfa = layout->nfa;
    bool endless = node->high == RULES_UNBOUNDED;
    uint32_t copies = endless ? node->low + 1 : node->high;
    for (uint32_t i = 0; i < copies && !nfa->full; i++) {
        uint32_t begin = nfa_state(nfa), end = nfa_state(nfa);
        if (i >= node->low)
            nfa_skip(nfa, from, to);
        nfa_skip(nfa, from, begin);
        lay_out(layout, node->first, begin, end);
        if (endless && i == node->low)
            nfa_skip(nfa, end, begin);
        from = end;
    }
    nfa_skip(nfa, from, to);
}

static void lay_out(struct layout *layout, uint32_t id, uint32_t from, uint32_t to)
{
    const struct ebnf *tree = layout->tree;
    const struct ebnf_node *node = &tree->nodes[id];
    layout->nfa->full |= layout->depth++ > NEST_MAX;
    switch (layout->nfa->full ? EBNF_SCHEMA : node->kind) {
    case EBNF_TEXT: lay_out_text(layout, node, from, to); break;
    case EBNF_CLASS:
        class_to_nfa(&tree->ranges[node->first], node->count, layout->in_string, layout->nfa, from, to);
        break;
    case EBNF_RULE: lay_out(layout, tree->rules[node->first].body, from, to); break;
    case EBNF_REPEAT: lay_out_repeat(layout, node, from, to); break;
    case EBNF_CHOICE:
        for (uint32_t i = 0; i < node->count; i++)
            lay_out(layout, tree->links[node->first + i], from, to);
        break;
    case EBNF_SEQUENCE:
        for (uint32_t i = 0; i < node->count; i++) {
            uint32_t next = i + 1 < node->count ? nfa_state(layout->nfa) : to;
            lay_out(layout, tree->links[node->first + i], from, next);
            from = next;
        }
        break;
    default: break;
    }
    layout->depth--;
}

void ebnf_to_nfa(const struct ebnf *tree, uint32_t node, bool in_string, struct nfa *nfa, uint32_t from, uint32_t to)
{
    lay_out(&(struct layout){ tree, nfa, in_string, 0 }, node, from, to);
}
