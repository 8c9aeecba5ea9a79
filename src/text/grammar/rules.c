// SPDX-License-Identifier: Apache-2.0
#include "text/grammar/rules.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/grammar/string.h"

// ---- making ----

static uint32_t add_node(struct grammar *grammar, struct node node, struct error *err)
{
    if (grammar->node_count >= RULES_NODES_MAX) {
        fail(err, "the schema takes more than %d rules; make it smaller", RULES_NODES_MAX);
        return RULES_NONE;
    }
    if (grammar->node_count == grammar->node_capacity) {
        grammar->node_capacity = grammar->node_capacity ? grammar->node_capacity * 2 : 64;
        grammar->nodes = memory_grow(grammar->nodes, grammar->node_capacity, sizeof *grammar->nodes);
    }
    node.cost = node.height = RULES_NEVER;
    grammar->nodes[grammar->node_count] = node;
    return grammar->node_count++;
}

static int compare_words(const void *a, const void *b)
{
    struct bytes x = ((const struct word *)a)->text, y = ((const struct word *)b)->text;
    int order = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return order ? order : (x.len > y.len) - (x.len < y.len);
}

uint32_t rules_words(struct grammar *grammar, struct word *words, uint32_t count, struct error *err)
{
    struct word_table table = { ARENA_NEW(&grammar->arena, struct word, count), count };
    for (uint32_t i = 0; i < count; i++) {
        grammar->text_bytes += words[i].text.len;
        if (grammar->text_bytes > RULES_TEXT_BYTES_MAX) {
            fail(err, "the names and values of the schema take more than %d bytes; make it smaller",
                 RULES_TEXT_BYTES_MAX);
            return RULES_NONE;
        }
        table.words[i] = words[i];
        table.words[i].text.data = arena_text(&grammar->arena, words[i].text.data, words[i].text.len);
    }
    qsort(table.words, count, sizeof *table.words, compare_words);
    if (grammar->table_count == grammar->table_capacity) {
        grammar->table_capacity = grammar->table_capacity ? grammar->table_capacity * 2 : 64;
        grammar->tables = memory_grow(grammar->tables, grammar->table_capacity, sizeof *grammar->tables);
    }
    grammar->tables[grammar->table_count] = table;
    return add_node(grammar,
                    (struct node){ .kind = NODE_WORDS,
                                   .rest = RULES_NONE,
                                   .count = count,
                                   .high = RULES_UNBOUNDED,
                                   .table = grammar->table_count++ },
                    err);
}

uint32_t rules_words_part(struct grammar *grammar, uint32_t words, struct node part, struct error *err)
{
    part.kind = NODE_WORDS;
    part.table = grammar->nodes[words].table;
    return add_node(grammar, part, err);
}

uint32_t rules_literal(struct grammar *grammar, struct bytes text, struct error *err)
{
    return rules_words(grammar, &(struct word){ .text = text, .next = RULES_NONE }, 1, err);
}

uint32_t rules_string(struct grammar *grammar, uint32_t low, uint32_t high, struct error *err)
{
    return add_node(grammar, (struct node){ .kind = NODE_STRING, .low = low, .high = high }, err);
}

uint32_t rules_dfa(struct grammar *grammar, struct dfa *dfa, struct error *err)
{
    if (grammar->states + dfa->count > DFA_STATES_MAX || grammar->dfa_count == RULES_DFAS_MAX) {
        dfa_free(dfa);
        fail(err, "the schema's patterns, formats and number ranges are too intricate together; leave some out");
        return RULES_NONE;
    }
    grammar->dfas = memory_grow(grammar->dfas, grammar->dfa_count + 1, sizeof *grammar->dfas);
    grammar->dfas[grammar->dfa_count] = *dfa;
    grammar->states += dfa->count;
    return add_node(grammar, (struct node){ .kind = NODE_DFA, .table = grammar->dfa_count++ }, err);
}

uint32_t rules_mark(struct grammar *grammar, char byte, bool before, bool behind, struct error *err)
{
    uint32_t node;
    char name[16];
    snprintf(name, sizeof name, "mark %c%d%d", byte, before, behind);
    if (rules_known(grammar, name, &node))
        return node;
    node = add_node(grammar, (struct node){ .kind = NODE_MARK, .first = (uint8_t)byte, .low = before, .high = behind },
                    err);
    if (node != RULES_NONE)
        rules_remember(grammar, name, node);
    return node;
}

uint32_t rules_sequence(struct grammar *grammar, uint32_t first, uint32_t rest, struct error *err)
{
    if (first == RULES_NONE || rest == RULES_NONE)
        return RULES_NONE;
    return add_node(grammar, (struct node){ .kind = NODE_SEQUENCE, .first = first, .rest = rest }, err);
}

static uint32_t add_link(struct grammar *grammar, uint32_t node)
{
    if (grammar->link_count == grammar->link_capacity) {
        grammar->link_capacity = grammar->link_capacity ? grammar->link_capacity * 2 : 64;
        grammar->links = memory_grow(grammar->links, grammar->link_capacity, sizeof *grammar->links);
    }
    grammar->links[grammar->link_count] = node;
    return grammar->link_count++;
}

// The mark that a node begins with, and what comes behind that, where the node is a sequence of the two or refers to
// one.
static bool split_at_mark(const struct grammar *grammar, uint32_t node, uint32_t *mark, uint32_t *rest)
{
    for (int i = 0; i < 4 && node != RULES_NONE; i++) { // references to references are rare
        const struct node *at = &grammar->nodes[node];
        if (at->kind == NODE_SEQUENCE && grammar->nodes[at->first].kind == NODE_MARK) {
            *mark = at->first;
            *rest = at->rest;
            return true;
        }
        node = at->kind == NODE_CHOICE && at->count == 1 ? grammar->links[at->first] : RULES_NONE;
    }
    return false;
}

static uint32_t choose(struct grammar *grammar, const uint32_t *nodes, size_t count, struct error *err)
{
    struct node choice = { .kind = NODE_CHOICE, .first = grammar->link_count };
    for (size_t i = 0; i < count; i++) {
        bool again = false;
        if (nodes[i] == RULES_NONE)
            return RULES_NONE;
        for (size_t j = 0; j < i; j++)
            again |= nodes[j] == nodes[i];
        if (!again)
            add_link(grammar, nodes[i]), choice.count++;
    }
    return add_node(grammar, choice, err);
}

// Left factoring: alternatives that begin with the same mark as alternative i, which is the first of them, as one node.
static uint32_t factor(struct grammar *grammar, const uint32_t *nodes, size_t i, size_t count, uint32_t *rests,
                       bool *again, struct error *err)
{
    uint32_t mark, other, rest;
    size_t alike = 0;
    *again = false;
    if (!split_at_mark(grammar, nodes[i], &mark, &rest))
        return nodes[i];
    for (size_t j = 0; j < count && !*again; j++) {
        if (!split_at_mark(grammar, nodes[j], &other, &rest) || other != mark)
            continue;
        *again = j < i;
        rests[alike++] = rest;
    }
    return alike < 2 || *again ? nodes[i] : rules_sequence(grammar, mark, choose(grammar, rests, alike, err), err);
}

uint32_t rules_choice(struct grammar *grammar, const uint32_t *nodes, size_t count, struct error *err)
{
    if (count == 1)
        return nodes[0];
    if (count > RULES_CHOICES_MAX) {
        fail(err, "a choice of %zu alternatives, and %d is the limit", count, RULES_CHOICES_MAX);
        return RULES_NONE;
    }
    uint32_t kept[RULES_CHOICES_MAX], rests[RULES_CHOICES_MAX];
    size_t kept_count = 0;
    for (size_t i = 0; i < count; i++) {
        bool again;
        uint32_t node = factor(grammar, nodes, i, count, rests, &again, err);
        if (!again)
            kept[kept_count++] = node;
    }
    return kept_count == 1 ? kept[0] : choose(grammar, kept, kept_count, err);
}

uint32_t rules_repeat(struct grammar *grammar, uint32_t item, uint32_t separator, uint32_t low, uint32_t high,
                      struct error *err)
{
    if (item == RULES_NONE)
        return RULES_NONE;
    return add_node(
        grammar, (struct node){ .kind = NODE_REPEAT, .first = item, .rest = separator, .low = low, .high = high }, err);
}

uint32_t rules_reserve(struct grammar *grammar, struct error *err)
{
    struct node node = { .kind = NODE_CHOICE, .first = add_link(grammar, RULES_NONE), .count = 1 };
    return add_node(grammar, node, err);
}

void rules_settle(struct grammar *grammar, uint32_t reserved, uint32_t node)
{
    grammar->links[grammar->nodes[reserved].first] = node;
}

bool rules_known(const struct grammar *grammar, const char *name, uint32_t *node)
{
    int64_t value;
    if (!map_get(&grammar->known, bytes_of(name), &value))
        return false;
    *node = (uint32_t)value;
    return true;
}

void rules_remember(struct grammar *grammar, const char *name, uint32_t node)
{
    size_t len = strlen(name);
    map_put(&grammar->known, (struct bytes){ arena_text(&grammar->arena, name, len), len }, node);
}

void grammar_free(struct grammar *grammar)
{
    if (!grammar)
        return;
    for (uint32_t i = 0; i < grammar->dfa_count; i++)
        dfa_free(&grammar->dfas[i]);
    free(grammar->dfas);
    free(grammar->nodes);
    free(grammar->tables);
    free(grammar->links);
    mask_cache_close(grammar->masks);
    map_free(&grammar->known);
    strbuf_free(&grammar->loose);
    strbuf_free(&grammar->unheld);
    arena_free(&grammar->arena);
    free(grammar);
}

// ---- measuring ----

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

// Costs and heights only fall. A pass settles what refers to earlier nodes, as nearly all do: more are for cycles.
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

// Alternatives of alternatives become its own, each once. False: there are too many.
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
                add_link(grammar, node);
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

// The longest chain from a node; 0: it has no end, or is too long or too wide.
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

// Every byte of a word, marks, and the bytes on the ways out of dfas and strings.
static void find_needs(struct grammar *grammar)
{
    byte_set_add(&grammar->needs, '"');
    byte_set_add(&grammar->needs, ' ');
    for (size_t i = 0; i < STRING_STATE_COUNT; i++)
        for (const char *byte = string_closings[i]; *byte; byte++)
            byte_set_add(&grammar->needs, (uint8_t)*byte);
    for (uint32_t i = 0; i < grammar->table_count; i++)
        for (uint32_t k = 0; k < grammar->tables[i].count; k++)
            for (size_t j = 0; j < grammar->tables[i].words[k].text.len; j++)
                byte_set_add(&grammar->needs, (uint8_t)grammar->tables[i].words[k].text.data[j]);
    for (uint32_t i = 0; i < grammar->dfa_count; i++)
        for (uint32_t k = DFA_START; k < grammar->dfas[i].count; k++)
            if (grammar->dfas[i].states[k].closing)
                byte_set_add(&grammar->needs, grammar->dfas[i].states[k].toward);
    for (uint32_t i = 0; i < grammar->node_count; i++)
        if (grammar->nodes[i].kind == NODE_MARK)
            byte_set_add(&grammar->needs, (uint8_t)grammar->nodes[i].first);
}

// The first bytes of words, strings, dfas and marks.
static void find_begins(struct grammar *grammar)
{
    byte_set_add(&grammar->begins, '"');
    for (uint32_t i = 0; i < grammar->table_count; i++)
        for (uint32_t k = 0; k < grammar->tables[i].count; k++)
            byte_set_add(&grammar->begins, (uint8_t)grammar->tables[i].words[k].text.data[0]);
    for (uint32_t i = 0; i < grammar->dfa_count; i++)
        for (int byte = 0; byte < 256 && grammar->dfas[i].count; byte++)
            if (grammar->dfas[i].states[DFA_START].next[byte] != DFA_DEAD)
                byte_set_add(&grammar->begins, (uint8_t)byte);
    for (uint32_t i = 0; i < grammar->node_count; i++)
        if (grammar->nodes[i].kind == NODE_MARK)
            byte_set_add(&grammar->begins, (uint8_t)grammar->nodes[i].first);
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
    find_needs(grammar);
    find_begins(grammar);
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
    if (work->count == work->capacity) {
        work->capacity = work->capacity ? work->capacity * 2 : 64;
        work->items = memory_grow(work->items, work->capacity, sizeof *work->items);
    }
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
