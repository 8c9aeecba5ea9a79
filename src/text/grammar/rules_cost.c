// SPDX-License-Identifier: Apache-2.0
// Shortest derivations: the cost of every node (passes to a fixed point, as in Bellman-Ford), checks for left recursion
// and depth, and the shortest text.
#include <assert.h>
#include <stdlib.h>

#include "text/grammar/rules.h"
#include "text/grammar/string.h"

// ---- costs ----

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

uint32_t rules_word_cost(const struct grammar *grammar, const struct word *word)
{
    uint32_t len = (uint32_t)word->text.len;
    return word->next == RULES_NONE ? len : rules_add(len, grammar->nodes[word->next].cost);
}

uint32_t rules_repeat_cost(const struct grammar *grammar, const struct node *node, uint32_t done)
{
    if (done >= node->low)
        return 0;
    uint32_t item = grammar->nodes[node->first].cost;
    uint32_t separator = node->rest == RULES_NONE ? 0 : grammar->nodes[node->rest].cost;
    uint64_t times = node->low - done;
    uint64_t cost = times * item + (times - !done) * separator;
    if (item == RULES_NEVER)
        return RULES_NEVER;
    return cost < RULES_COST_MAX ? (uint32_t)cost : RULES_COST_MAX;
}

static void measure_words(struct grammar *grammar, struct node *node)
{
    const struct node *rest = node->rest == RULES_NONE ? NULL : &grammar->nodes[node->rest];
    if (rest && rest->cost < node->cost)
        node->cost = rest->cost, node->best = rest->best;
    if (rest && rest->height < node->height)
        node->height = rest->height;
    for (uint32_t i = node->first; i < node->first + node->count; i++) {
        const struct word *word = &grammar->tables[node->table].words[i];
        uint32_t cost = rules_word_cost(grammar, word);
        uint32_t height = word->next == RULES_NONE ? 0 : grammar->nodes[word->next].height;
        if (cost < node->cost)
            node->cost = cost, node->best = i;
        if (height < node->height)
            node->height = height;
    }
}

static void measure_choice(struct grammar *grammar, struct node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        const struct node *child = &grammar->nodes[grammar->links[node->first + i]];
        if (child->cost < node->cost)
            node->cost = child->cost, node->best = i;
        if (child->height < node->height)
            node->height = child->height;
    }
}

static void measure_node(struct grammar *grammar, struct node *node)
{
    const struct node *nodes = grammar->nodes;
    switch (node->kind) {
    case NODE_WORDS: measure_words(grammar, node); return;
    case NODE_STRING:
        node->cost = rules_add(node->low, 2);
        node->height = 0;
        return;
    case NODE_DFA:
        if (grammar->dfas[node->table].count) {
            node->cost = grammar->dfas[node->table].states[DFA_START].closing;
            node->height = 0;
        }
        return;
    case NODE_MARK:
        node->cost = 1;
        node->height = 0;
        return;
    case NODE_SEQUENCE:
        node->cost = rules_add(nodes[node->first].cost, nodes[node->rest].cost);
        node->height = larger(rules_add(nodes[node->first].height, 1), nodes[node->rest].height);
        return;
    case NODE_CHOICE: measure_choice(grammar, node); return;
    case NODE_REPEAT:
        node->cost = rules_repeat_cost(grammar, node, 0);
        node->height = node->low ? rules_add(larger(nodes[node->first].height, node->rest != RULES_NONE), 1) : 0;
        return;
    }
}

// Costs and heights only fall. One pass is enough for nodes that refer to earlier ones; cycles need more.
static void measure(struct grammar *grammar)
{
    bool changed = true;
    size_t work = 0;
    for (int pass = 0; changed && pass < RULES_PASSES_MAX && work < RULES_WORK_MAX; pass++) {
        changed = false;
        for (uint32_t i = 0; i < grammar->node_count; i++) {
            struct node *node = &grammar->nodes[i];
            uint32_t cost = node->cost, height = node->height;
            measure_node(grammar, node);
            work += node->count + 1;
            changed |= node->cost != cost || node->height != height;
        }
    }
}

// ---- what is entered before a byte is read ----

struct leads {
    uint16_t *lengths; // by node: of the longest chain of nodes entered one through the other; 0: not known yet
    uint32_t *marks;   // by node: the choice that has it already
};

enum { LEAD_UNKNOWN, LEAD_BUSY };

// Flattens nested choices into one, without duplicates. False: there are too many alternatives.
static bool flatten(struct grammar *grammar, uint32_t id, struct leads *leads)
{
    struct node *choice = &grammar->nodes[id];
    uint32_t first = grammar->link_count;
    for (uint32_t i = 0; i < choice->count; i++) {
        uint32_t child = grammar->links[choice->first + i];
        const struct node *below = &grammar->nodes[child];
        bool nested = below->kind == NODE_CHOICE;
        for (uint32_t k = 0; k < (nested ? below->count : 1); k++) {
            uint32_t node = nested ? grammar->links[below->first + k] : child;
            if (leads->marks[node] != id + 1)
                rules_add_link(grammar, node);
            leads->marks[node] = id + 1;
        }
        if (grammar->link_count - first > RULES_CHOICES_MAX || grammar->link_count > RULES_LINKS_MAX)
            return false;
    }
    choice->first = first;
    choice->count = grammar->link_count - first;
    return true;
}

static bool may_be_empty(const struct node *node) { return node->kind == NODE_REPEAT && !node->low; }

// The longest chain of nodes entered before a byte is read; 0: it is left-recursive, too long or too wide.
static uint32_t lead(struct grammar *grammar, uint32_t id, uint32_t depth, struct leads *leads)
{
    struct node node = grammar->nodes[id];
    uint32_t longest = LEAD_BUSY, below = LEAD_BUSY;
    if (depth > RULES_LEAD_MAX || leads->lengths[id] == LEAD_BUSY)
        return 0;
    if (leads->lengths[id] != LEAD_UNKNOWN)
        return leads->lengths[id];
    leads->lengths[id] = LEAD_BUSY;
    uint32_t children = node.kind == NODE_CHOICE ? node.count : node.kind >= NODE_SEQUENCE;
    if (node.kind == NODE_SEQUENCE && may_be_empty(&grammar->nodes[node.first]))
        children = 2;
    for (uint32_t i = 0; i < children && below; i++) {
        uint32_t child = node.kind == NODE_CHOICE ? grammar->links[node.first + i] : i ? node.rest : node.first;
        below = lead(grammar, child, depth + 1, leads);
        longest = larger(longest, below);
    }
    if (!below || longest > RULES_LEAD_MAX || (node.kind == NODE_CHOICE && !flatten(grammar, id, leads)))
        return 0;
    return leads->lengths[id] = (uint16_t)(longest + 1);
}

static bool check_leads(struct grammar *grammar)
{
    struct leads leads = { memory_new(grammar->node_count, sizeof *leads.lengths),
                           memory_new(grammar->node_count, sizeof *leads.marks) };
    bool ok = true;
    for (uint32_t i = 0; i < grammar->node_count && ok; i++)
        ok = lead(grammar, i, 0, &leads) > 0;
    free(leads.lengths);
    free(leads.marks);
    return ok;
}

// grammar->begins: first bytes of leaves. grammar->needs: bytes that a shortest ending may have, which are all bytes of
// words, marks, and the bytes on shortest paths through automata and strings.
static void collect_bytes(struct grammar *grammar)
{
    struct byte_set *needs = &grammar->needs, *begins = &grammar->begins;
    byte_set_add(begins, '"');
    byte_set_add(needs, '"');
    byte_set_add(needs, ' ');
    for (size_t i = 0; i < STRING_STATE_COUNT; i++)
        for (const char *byte = string_closings[i]; *byte; byte++)
            byte_set_add(needs, (uint8_t)*byte);
    for (uint32_t i = 0; i < grammar->table_count; i++)
        for (uint32_t k = 0; k < grammar->tables[i].count; k++) {
            struct bytes text = grammar->tables[i].words[k].text;
            byte_set_add(begins, (uint8_t)text.data[0]);
            for (size_t j = 0; j < text.len; j++)
                byte_set_add(needs, (uint8_t)text.data[j]);
        }
    for (uint32_t i = 0; i < grammar->dfa_count; i++) {
        const struct dfa *dfa = &grammar->dfas[i];
        for (uint32_t s = DFA_START; s < dfa->count; s++)
            if (dfa->states[s].closing)
                byte_set_add(needs, dfa->states[s].toward);
        for (int byte = 0; byte < 256 && dfa->count; byte++)
            if (dfa->states[DFA_START].next[byte] != DFA_DEAD)
                byte_set_add(begins, (uint8_t)byte);
    }
    for (uint32_t i = 0; i < grammar->node_count; i++)
        if (grammar->nodes[i].kind == NODE_MARK) {
            byte_set_add(needs, (uint8_t)grammar->nodes[i].first);
            byte_set_add(begins, (uint8_t)grammar->nodes[i].first);
        }
}

bool rules_finish(struct grammar *grammar, uint32_t root, struct error *err)
{
    if (root == RULES_NONE)
        return false;
    grammar->root = root;
    grammar->masks = mask_cache_open();
    map_free(&grammar->known);
    if (!check_leads(grammar))
        return fail(err, "the schema refers to itself without ever coming to a value, or chooses among more than %d",
                    RULES_CHOICES_MAX);
    measure(grammar);
    collect_bytes(grammar);
    const struct node *node = &grammar->nodes[root];
    if (node->cost == RULES_NEVER)
        return fail(err, "no answer can meet the schema: it asks for something impossible, or for itself without end");
    if (node->height > RULES_HEIGHT_MAX)
        return fail(err, "every answer that meets the schema nests too deeply (%d levels are the limit)",
                    RULES_HEIGHT_MAX);
    if (node->cost > RULES_CLOSING_BYTES_MAX)
        return fail(err, "the shortest answer that meets the schema has more than %d bytes, which is the limit",
                    RULES_CLOSING_BYTES_MAX);
    return true;
}

// ---- writing ----

struct shortest_item {
    uint32_t node, done;
};

struct shortest_work {
    struct shortest_item *items;
    size_t count, capacity;
};

static void postpone(struct shortest_work *work, uint32_t node, uint32_t done)
{
    if (node == RULES_NONE)
        return;
    MEMORY_RESERVE(work->items, work->count, work->capacity);
    work->items[work->count++] = (struct shortest_item){ node, done };
}

static void write_dfa(const struct dfa *dfa, struct strbuf *out)
{
    const struct dfa_state *state = &dfa->states[DFA_START];
    for (; state->closing; state = &dfa->states[state->next[state->toward]])
        strbuf_add_byte(out, (char)state->toward);
}

static void write_node(const struct grammar *grammar, struct shortest_item item, struct shortest_work *work,
                       struct strbuf *out)
{
    const struct node *node = &grammar->nodes[item.node];
    switch (node->kind) {
    case NODE_WORDS: {
        const struct word *word = &grammar->tables[node->table].words[node->best];
        strbuf_add(out, word->text.data, word->text.len);
        postpone(work, word->next, 0);
        return;
    }
    case NODE_STRING:
        strbuf_add_byte(out, '"');
        for (uint32_t i = 0; i < node->low; i++)
            strbuf_add_byte(out, ' ');
        strbuf_add_byte(out, '"');
        return;
    case NODE_DFA: write_dfa(&grammar->dfas[node->table], out); return;
    case NODE_MARK: strbuf_add_byte(out, (char)node->first); return;
    case NODE_SEQUENCE:
        postpone(work, node->rest, 0);
        postpone(work, node->first, 0);
        return;
    case NODE_CHOICE: postpone(work, grammar->links[node->first + node->best], 0); return;
    case NODE_REPEAT:
        if (item.done >= node->low)
            return;
        postpone(work, item.node, item.done + 1);
        postpone(work, node->first, 0);
        if (item.done)
            postpone(work, node->rest, 0);
        return;
    }
}

void rules_write_shortest(const struct grammar *grammar, uint32_t node, uint32_t done, struct strbuf *out)
{
    struct shortest_work work = { 0 };
    assert(grammar->nodes[node].cost != RULES_NEVER);
    for (postpone(&work, node, done); work.count;)
        write_node(grammar, work.items[--work.count], &work, out);
    free(work.items);
}
