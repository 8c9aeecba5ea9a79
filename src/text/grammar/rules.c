// SPDX-License-Identifier: Apache-2.0
// Construction of grammar rules, with left factoring of alternatives that begin with the same punctuation.
#include "text/grammar/rules.h"

#include <stdio.h>
#include <stdlib.h>

// ---- making ----

static uint32_t add_node(struct grammar *grammar, struct node node, struct error *err)
{
    if (grammar->node_count >= RULES_NODES_MAX)
        return fail(err, "the schema takes more than %d rules; make it smaller", RULES_NODES_MAX), RULES_NONE;
    MEMORY_RESERVE(grammar->nodes, grammar->node_count, grammar->node_capacity);
    node.cost = node.height = RULES_NEVER;
    grammar->nodes[grammar->node_count] = node;
    return grammar->node_count++;
}

int word_order(const void *a, const void *b)
{
    return bytes_order(((const struct word *)a)->text, ((const struct word *)b)->text);
}

uint32_t rules_words(struct grammar *grammar, struct word *words, uint32_t count, struct error *err)
{
    struct word_table table = { ARENA_NEW(&grammar->arena, struct word, count), count };
    for (uint32_t i = 0; i < count; i++) {
        grammar->text_bytes += words[i].text.len;
        if (grammar->text_bytes > RULES_TEXT_BYTES_MAX)
            return fail(err, "the names and values of the schema take more than %d bytes; make it smaller",
                        RULES_TEXT_BYTES_MAX),
                   RULES_NONE;
        table.words[i] = words[i];
        table.words[i].text.data = arena_text(&grammar->arena, words[i].text.data, words[i].text.len);
    }
    qsort(table.words, count, sizeof *table.words, word_order);
    MEMORY_RESERVE(grammar->tables, grammar->table_count, grammar->table_capacity);
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
    before &= !grammar->compact;
    behind &= !grammar->compact;
    snprintf(name, sizeof name, "mark %c%d%d", byte, before, behind);
    if (rules_find(grammar, name, &node))
        return node;
    node = add_node(grammar, (struct node){ .kind = NODE_MARK, .first = (uint8_t)byte, .low = before, .high = behind },
                    err);
    return rules_name(grammar, name, node);
}

uint32_t rules_sequence(struct grammar *grammar, uint32_t first, uint32_t rest, struct error *err)
{
    if (first == RULES_NONE || rest == RULES_NONE)
        return RULES_NONE;
    return add_node(grammar, (struct node){ .kind = NODE_SEQUENCE, .first = first, .rest = rest }, err);
}

uint32_t rules_add_link(struct grammar *grammar, uint32_t node)
{
    MEMORY_RESERVE(grammar->links, grammar->link_count, grammar->link_capacity);
    grammar->links[grammar->link_count] = node;
    return grammar->link_count++;
}

// Splits a sequence (or a reference to one) that begins with a mark into the mark and the rest.
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
            rules_add_link(grammar, nodes[i]), choice.count++;
    }
    return add_node(grammar, choice, err);
}

// Left factoring: joins the alternatives that begin with the same mark as alternative i, the first of them.
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
    if (count > RULES_CHOICES_MAX)
        return fail(err, "a choice of %zu alternatives, and %d is the limit", count, RULES_CHOICES_MAX), RULES_NONE;
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
    struct node node = { .kind = NODE_CHOICE, .first = rules_add_link(grammar, RULES_NONE), .count = 1 };
    return add_node(grammar, node, err);
}

void rules_define(struct grammar *grammar, uint32_t reserved, uint32_t node)
{
    grammar->links[grammar->nodes[reserved].first] = node;
}

bool rules_find(const struct grammar *grammar, const char *name, uint32_t *node)
{
    int64_t value;
    if (!map_get(&grammar->known, bytes_of(name), &value))
        return false;
    *node = (uint32_t)value;
    return true;
}

uint32_t rules_name(struct grammar *grammar, const char *name, uint32_t node)
{
    size_t len = strlen(name);
    if (node != RULES_NONE)
        map_put(&grammar->known, (struct bytes){ arena_text(&grammar->arena, name, len), len }, node);
    return node;
}

struct grammar *grammar_share(struct grammar *grammar)
{
    atomic_fetch_add(&grammar->sharers, 1);
    return grammar;
}

size_t grammar_bytes(const struct grammar *grammar, int vocabulary)
{
    size_t words = 0, masks = MASK_CACHE_MAX * ((size_t)vocabulary / 8);
    for (uint32_t i = 0; i < grammar->table_count; i++)
        words += grammar->tables[i].count;
    return sizeof *grammar + masks + grammar->text_bytes + words * sizeof(struct word)
        + grammar->states * sizeof(struct dfa_state) + grammar->node_capacity * sizeof *grammar->nodes
        + grammar->table_capacity * sizeof *grammar->tables + grammar->link_capacity * sizeof *grammar->links
        + grammar->unenforced.cap + grammar->unsupported.cap + grammar->notice.cap;
}

void grammar_free(struct grammar *grammar)
{
    if (!grammar || atomic_fetch_sub(&grammar->sharers, 1) > 0)
        return;
    for (uint32_t i = 0; i < grammar->dfa_count; i++)
        dfa_free(&grammar->dfas[i]);
    free(grammar->dfas);
    free(grammar->nodes);
    free(grammar->tables);
    free(grammar->links);
    mask_cache_close(grammar->masks);
    map_free(&grammar->known);
    strbuf_free(&grammar->unenforced);
    strbuf_free(&grammar->unsupported);
    strbuf_free(&grammar->notice);
    arena_free(&grammar->arena);
    free(grammar);
}
