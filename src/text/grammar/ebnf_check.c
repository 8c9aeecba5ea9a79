// SPDX-License-Identifier: Apache-2.0
// Analysis of a grammar's syntax tree: which rules are used, end, may be empty or begin with themselves, and which
// parts are regular. Everything but the sizes is linear in the tree; nothing recurses from rule to rule.
#include "text/grammar/ebnf.h"

#include <stdio.h>
#include <stdlib.h>

// ---- links ----------------------------------------------------------------------------------------------------------

static uint32_t child_count(const struct ebnf_node *node)
{
    if (node->kind == EBNF_SEQUENCE || node->kind == EBNF_CHOICE)
        return node->count;
    return node->kind == EBNF_REPEAT;
}

static uint32_t child(const struct ebnf *tree, const struct ebnf_node *node, uint32_t i)
{
    return node->kind == EBNF_REPEAT ? node->first : tree->links[node->first + i];
}

// Lists that are no longer in use stand before those that have taken their entries over.
static void link_parents(struct ebnf *tree)
{
    for (uint32_t i = 0; i < tree->node_count; i++)
        for (uint32_t k = 0; k < child_count(&tree->nodes[i]); k++)
            tree->nodes[child(tree, &tree->nodes[i], k)].parent = i;
    for (uint32_t r = 0; r < tree->rule_count; r++) {
        tree->nodes[tree->rules[r].body].parent = EBNF_NONE;
        tree->nodes[tree->rules[r].body].body_of = r;
    }
}

static bool check_defined(struct ebnf *tree)
{
    for (uint32_t r = 0; r < tree->rule_count; r++)
        if (tree->rules[r].body == EBNF_NONE)
            return ebnf_fail_rule(tree, r, "is used and not defined");
    return true;
}

// The references to each rule, as linked lists of nodes.
struct references {
    uint32_t *heads, *next;
};

static struct references find_references(const struct ebnf *tree)
{
    struct references references = { memory_new(tree->rule_count, sizeof(uint32_t)),
                                     memory_new(tree->node_count + 1, sizeof(uint32_t)) };
    for (uint32_t r = 0; r < tree->rule_count; r++)
        references.heads[r] = EBNF_NONE;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        if (tree->nodes[i].kind != EBNF_RULE)
            continue;
        references.next[i] = references.heads[tree->nodes[i].first];
        references.heads[tree->nodes[i].first] = i;
    }
    return references;
}

static void references_free(struct references *references)
{
    free(references->heads);
    free(references->next);
}

// Marks the rules that the root leads to.
static void mark_used(struct ebnf *tree)
{
    uint32_t *rules = memory_new(tree->rule_count, sizeof *rules), count = 1;
    uint32_t *nodes = memory_new(tree->node_count, sizeof *nodes);
    rules[0] = tree->root;
    tree->rules[tree->root].used = true;
    while (count) {
        uint32_t depth = 1;
        nodes[0] = tree->rules[rules[--count]].body;
        while (depth) {
            const struct ebnf_node *node = &tree->nodes[nodes[--depth]];
            for (uint32_t k = 0; k < child_count(node); k++)
                nodes[depth++] = child(tree, node, k);
            if (node->kind != EBNF_RULE || tree->rules[node->first].used)
                continue;
            tree->rules[node->first].used = true;
            rules[count++] = node->first;
        }
    }
    free(rules);
    free(nodes);
}

// ---- properties that spread from the leaves (unit propagation of Horn clauses) --------------------------------------

enum property { PROPERTY_ENDS, PROPERTY_EMPTY, PROPERTY_TEXT };

static bool *property_of(struct ebnf_node *node, enum property property)
{
    return property == PROPERTY_ENDS ? &node->ends : property == PROPERTY_EMPTY ? &node->may_be_empty : &node->has_text;
}

static bool holds_itself(const struct ebnf *tree, const struct ebnf_node *node, enum property property)
{
    switch (node->kind) {
    case EBNF_TEXT: return property == PROPERTY_ENDS || (node->count == 0) == (property == PROPERTY_EMPTY);
    case EBNF_CLASS:
    case EBNF_SCHEMA: return property != PROPERTY_EMPTY;
    case EBNF_REPEAT: return property != PROPERTY_TEXT && node->low == 0;
    case EBNF_DFA: {
        const struct dfa_state *start = &tree->dfas[node->first].states[DFA_START];
        return property == PROPERTY_ENDS || (property == PROPERTY_EMPTY ? start->accepts : start->continues);
    }
    default: return false;
    }
}

struct spread {
    struct ebnf *tree;
    enum property property;
    uint32_t *stack, depth;
    uint32_t *missing; // by sequence: entries that lack the property
};

static void hold(struct spread *spread, uint32_t id)
{
    bool *holds = property_of(&spread->tree->nodes[id], spread->property);
    if (!*holds)
        spread->stack[spread->depth++] = id;
    *holds = true;
}

// A sequence needs the property of all its entries, but text of one alone.
static void spread_up(struct spread *spread, uint32_t parent)
{
    bool all = spread->tree->nodes[parent].kind == EBNF_SEQUENCE && spread->property != PROPERTY_TEXT;
    if (!all || --spread->missing[parent] == 0)
        hold(spread, parent);
}

static void find_property(struct ebnf *tree, const struct references *references, enum property property)
{
    struct spread spread = { tree, property, memory_new(tree->node_count, sizeof(uint32_t)), 0,
                             memory_new(tree->node_count, sizeof(uint32_t)) };
    for (uint32_t i = 0; i < tree->node_count; i++) {
        spread.missing[i] = tree->nodes[i].count;
        if (holds_itself(tree, &tree->nodes[i], property))
            hold(&spread, i);
    }
    while (spread.depth) {
        const struct ebnf_node *node = &tree->nodes[spread.stack[--spread.depth]];
        if (node->parent != EBNF_NONE)
            spread_up(&spread, node->parent);
        else if (node->body_of != EBNF_NONE)
            for (uint32_t at = references->heads[node->body_of]; at != EBNF_NONE; at = references->next[at])
                hold(&spread, at);
    }
    free(spread.stack);
    free(spread.missing);
}

static bool check_ends(struct ebnf *tree)
{
    for (uint32_t r = 0; r < tree->rule_count; r++)
        if (tree->rules[r].used && !tree->nodes[tree->rules[r].body].ends)
            return ebnf_fail_rule(tree, r, "cannot end: each of its alternatives leads back to it");
    return true;
}

// ---- direct left recursion ------------------------------------------------------------------------------------------

// Direct left recursion, as Lark grammars have it, becomes a repetition: R ::= R "+" T | T is T ( "+" T )*. Where a
// recursive alternative also ends with R, that end becomes one of the others, so that the repetition is the only way.

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

static bool loop_left(struct ebnf *tree)
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

// ---- left recursion by way of others --------------------------------------------------------------------------------

// The rules that a body may begin with, as a search goes through them.
struct begin {
    uint32_t rule;
    uint32_t depth; // entries of the stack of nodes below it
};

struct search {
    struct ebnf *tree;
    uint8_t *colours; // by rule
    uint32_t *nodes, node_count, node_capacity;
    struct begin *path;
    uint32_t path_count;
};

enum colour { UNSEEN, OPEN, DONE };

static void push_node(struct search *search, uint32_t node)
{
    MEMORY_RESERVE(search->nodes, search->node_count, search->node_capacity);
    search->nodes[search->node_count++] = node;
}

static void push_rule(struct search *search, uint32_t rule)
{
    search->colours[rule] = OPEN;
    search->path[search->path_count++] = (struct begin){ rule, search->node_count };
    push_node(search, search->tree->rules[rule].body);
}

static void push_first_children(struct search *search, const struct ebnf_node *node)
{
    for (uint32_t k = 0; k < child_count(node); k++) {
        uint32_t entry = child(search->tree, node, k);
        push_node(search, entry);
        if (node->kind == EBNF_SEQUENCE && !search->tree->nodes[entry].may_be_empty)
            return;
    }
}

static bool fail_left(struct search *search, uint32_t rule)
{
    const struct begin *top = &search->path[search->path_count - 1];
    char what[200] = "begins with itself (left recursion); write the repetition as (...)* or put a text before it";
    if (top->rule != rule && search->tree->rules[top->rule].name.data[0] != '%')
        snprintf(what, sizeof what,
                 "begins with itself by way of \"%.40s\" (left recursion); write the repetition as (...)* or put a "
                 "text before it",
                 search->tree->rules[top->rule].name.data);
    return ebnf_fail_rule(search->tree, rule, what);
}

// Depth-first search for a cycle of rules that begin with one another.
static bool search_from(struct search *search, uint32_t root)
{
    push_rule(search, root);
    while (search->path_count) {
        const struct begin *top = &search->path[search->path_count - 1];
        if (search->node_count == top->depth) {
            search->colours[top->rule] = DONE;
            search->path_count--;
            continue;
        }
        const struct ebnf_node *node = &search->tree->nodes[search->nodes[--search->node_count]];
        push_first_children(search, node);
        if (node->kind != EBNF_RULE || search->colours[node->first] == DONE)
            continue;
        if (search->colours[node->first] == OPEN)
            return fail_left(search, node->first);
        push_rule(search, node->first);
    }
    return true;
}

static bool check_left_recursion(struct ebnf *tree)
{
    struct search search = { .tree = tree,
                             .colours = memory_new(tree->rule_count, 1),
                             .path = memory_new(tree->rule_count, sizeof *search.path) };
    bool ok = search_from(&search, tree->root);
    for (uint32_t r = 0; r < tree->rule_count && ok; r++)
        ok = !tree->rules[r].used || search.colours[r] == DONE || search_from(&search, r);
    free(search.colours);
    free(search.nodes);
    free(search.path);
    return ok;
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

static uint32_t add_sizes(uint32_t a, uint32_t b)
{
    return a == EBNF_IRREGULAR || b == EBNF_IRREGULAR || a + b > NFA_STATES_MAX ? EBNF_IRREGULAR : a + b;
}

// States that a class takes beyond ASCII: a few for each range and length of UTF-8.
static uint32_t class_size(const struct ebnf *tree, const struct ebnf_node *node)
{
    enum { BEYOND_ASCII = 12 };
    uint32_t size = 1;
    for (uint32_t i = node->first; i < node->first + node->count; i++)
        size += tree->ranges[i].high > 0x7F ? BEYOND_ASCII : 0;
    return size;
}

static uint32_t repeat_size(uint32_t item, uint32_t low, uint32_t high)
{
    uint64_t times = high == RULES_UNBOUNDED ? (uint64_t)low + 1 : high;
    uint64_t size = times * ((uint64_t)item + 1);
    return item == EBNF_IRREGULAR || size > NFA_STATES_MAX ? EBNF_IRREGULAR : (uint32_t)size;
}

// The size of a node whose children and rules have theirs. The recursion is as deep as a rule's groups.
static uint32_t find_size(struct ebnf *tree, uint32_t id)
{
    struct ebnf_node *node = &tree->nodes[id];
    uint32_t size = 1;
    switch (node->kind) {
    case EBNF_TEXT: size += node->count; break;
    case EBNF_CLASS: size = class_size(tree, node); break;
    case EBNF_RULE: size = tree->nodes[tree->rules[node->first].body].size; break;
    case EBNF_REPEAT: size = repeat_size(find_size(tree, node->first), node->low, node->high); break;
    case EBNF_SEQUENCE:
    case EBNF_CHOICE:
        for (uint32_t k = 0; k < node->count; k++)
            size = add_sizes(size, find_size(tree, tree->links[node->first + k]));
        break;
    default: size = EBNF_IRREGULAR;
    }
    return node->size = size;
}

// Rules that refer to sized rules alone get a size; recursive ones never do. A pass sees one level more of them.
static void find_sizes(struct ebnf *tree)
{
    bool changed = true;
    for (uint32_t i = 0; i < tree->node_count; i++)
        tree->nodes[i].size = EBNF_IRREGULAR;
    for (int pass = 0; pass < EBNF_DEPTH_MAX && changed; pass++) {
        changed = false;
        for (uint32_t r = 0; r < tree->rule_count; r++) {
            uint32_t body = tree->rules[r].body;
            if (tree->nodes[body].size == EBNF_IRREGULAR)
                changed |= find_size(tree, body) != EBNF_IRREGULAR;
        }
    }
}

bool ebnf_check(struct ebnf *tree)
{
    if (!check_defined(tree) || !loop_left(tree))
        return false;
    link_parents(tree);
    mark_used(tree);
    struct references references = find_references(tree);
    for (enum property property = PROPERTY_ENDS; property <= PROPERTY_TEXT; property++)
        find_property(tree, &references, property);
    references_free(&references);
    if (!check_ends(tree) || !check_left_recursion(tree))
        return false;
    find_sizes(tree);
    return true;
}
