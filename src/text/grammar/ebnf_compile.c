// SPDX-License-Identifier: Apache-2.0
// From a syntax tree to rules. Regular parts become automata, so that one thread follows them whatever they hold;
// recursive ones become nodes, none of which may be empty (epsilon elimination): a part that may is its texts beside
// the empty one, zero times or once.
#include <stdlib.h>

#include "text/grammar/ebnf.h"
#include "text/grammar/schema.h"

enum {
    LEAF_SIZE_MAX = 2048,    // states of a nondeterministic automaton that one is tried for
    LEAF_WORK_MAX = 1 << 18, // edges visited in such an attempt
    LEAF_STATES_MAX = 512,   // of the result
    RUN_SIZE_MAX = 256,      // of neighbours that become one automaton; a larger rule is one of its own
    STATES_FOR_ATTEMPTS = DFA_STATES_MAX * 3 / 4, // of a grammar; the rest is for single characters
    WORK_FOR_ATTEMPTS = DFA_WORK_MAX / 4,
};

struct compiler {
    struct ebnf *tree;
    struct grammar *grammar;
    uint32_t *rules;   // by rule: its node
    uint32_t *waiting; // rules whose nodes are reserved
    uint32_t waiting_count;
    struct error *err;
};

// ---- automata -------------------------------------------------------------------------------------------------------

// Nothing leads back to the start of an automaton made here, so that it can cease to accept the empty text.
static void refuse_empty(struct dfa *dfa)
{
    struct dfa_state *start = &dfa->states[DFA_START];
    uint32_t closing = UINT32_MAX;
    if (!start->accepts)
        return;
    start->accepts = false;
    for (int byte = 0; byte < 256; byte++)
        if (start->next[byte] != DFA_DEAD && dfa->states[start->next[byte]].closing < closing) {
            closing = dfa->states[start->next[byte]].closing;
            start->toward = (uint8_t)byte;
        }
    start->closing = (uint16_t)(closing + 1);
}

// The texts of a part but the empty one. False: the automaton would be too large.
static bool try_automaton(struct compiler *compiler, uint32_t id, struct dfa *out)
{
    struct grammar *grammar = compiler->grammar;
    struct nfa nfa = { 0 };
    size_t work = DFA_WORK_MAX - LEAF_WORK_MAX;
    bool single = compiler->tree->nodes[id].kind == EBNF_CLASS;
    *out = (struct dfa){ 0 };
    if (!single && (compiler->tree->nodes[id].size > LEAF_SIZE_MAX || grammar->work > WORK_FOR_ATTEMPTS))
        return false;
    uint32_t begin = nfa_state(&nfa);
    nfa_skip(&nfa, NFA_START, begin);
    ebnf_to_nfa(compiler->tree, id, false, &nfa, begin, NFA_END);
    bool ok = dfa_from_nfa(&nfa, &work, out);
    if (ok && out->count) {
        refuse_empty(out);
        dfa_minimise(out, &work);
    }
    nfa_free(&nfa);
    grammar->work += work - (DFA_WORK_MAX - LEAF_WORK_MAX);
    if (ok && (single || (out->count <= LEAF_STATES_MAX && grammar->states + out->count <= STATES_FOR_ATTEMPTS)))
        return true;
    dfa_free(out);
    return false;
}

// ---- nodes. Each compiles the texts of a part but the empty one; the part has another ------------------------------

static uint32_t compile(struct compiler *compiler, uint32_t id);

// The texts of a part, with the empty one where it belongs to them.
static uint32_t compile_all(struct compiler *compiler, uint32_t id)
{
    uint32_t node = compile(compiler, id);
    return compiler->tree->nodes[id].may_be_empty
        ? rules_repeat(compiler->grammar, node, RULES_NONE, 0, 1, compiler->err)
        : node;
}

static uint32_t compile_class(struct compiler *compiler, uint32_t id)
{
    struct dfa dfa;
    const struct ebnf_node *node = &compiler->tree->nodes[id];
    struct bytes ranges = { (const char *)(compiler->tree->ranges + node->first), node->count * sizeof(struct range) };
    int64_t known;
    if (map_get(&compiler->grammar->known, ranges, &known))
        return (uint32_t)known;
    if (!try_automaton(compiler, id, &dfa))
        return fail(compiler->err, "line %u: the grammar's character classes are too intricate together", node->line),
               RULES_NONE;
    uint32_t made = rules_dfa(compiler->grammar, &dfa, compiler->err);
    if (made != RULES_NONE)
        map_put(&compiler->grammar->known, ranges, made);
    return made;
}

// A rule is compiled once; the nodes of recursive ones are reserved, so that nothing here recurses from rule to rule.
static uint32_t compile_rule(struct compiler *compiler, uint32_t rule)
{
    uint32_t *node = &compiler->rules[rule], body = compiler->tree->rules[rule].body;
    struct dfa dfa;
    if (*node != RULES_NONE)
        return *node;
    if (try_automaton(compiler, body, &dfa))
        return *node = rules_dfa(compiler->grammar, &dfa, compiler->err);
    *node = rules_reserve(compiler->grammar, compiler->err);
    compiler->waiting[compiler->waiting_count++] = rule;
    return *node;
}

// ---- sequences ----

// An entry of a sequence: neighbours that are one automaton together, or a node.
static uint32_t find_run(const struct compiler *compiler, const uint32_t *entries, uint32_t count)
{
    uint64_t size = 0;
    uint32_t run = 0;
    while (run < count) {
        uint32_t more = compiler->tree->nodes[entries[run]].size;
        if (more == EBNF_IRREGULAR || size + more > RUN_SIZE_MAX)
            break;
        size += more;
        run++;
    }
    return run;
}

// Makes runs of regular neighbours nodes of their own; returns how many entries there are then.
static uint32_t join_runs(struct compiler *compiler, uint32_t *entries, uint32_t count)
{
    struct ebnf *tree = compiler->tree;
    uint32_t joined = 0;
    for (uint32_t i = 0, run; i < count; i += run) {
        run = find_run(compiler, entries + i, count - i);
        if (run < 2) {
            entries[joined++] = entries[i];
            run = 1;
            continue;
        }
        uint32_t begin = ebnf_begin(tree);
        struct ebnf_node all = { .ends = true, .may_be_empty = true };
        for (uint32_t k = i; k < i + run; k++) {
            all.size += tree->nodes[entries[k]].size;
            all.may_be_empty &= tree->nodes[entries[k]].may_be_empty;
            all.has_text |= tree->nodes[entries[k]].has_text;
            ebnf_add(tree, entries[k]);
        }
        uint32_t node = ebnf_end(tree, begin, EBNF_SEQUENCE);
        if (node == EBNF_NONE)
            return 0;
        tree->nodes[node].size = all.size;
        tree->nodes[node].ends = true;
        tree->nodes[node].may_be_empty = all.may_be_empty;
        tree->nodes[node].has_text = all.has_text;
        entries[joined++] = node;
    }
    return joined;
}

// A B C, from the end: where all that comes first may be empty, "A B? C?", "B C?" and "C" are its texts.
static uint32_t compile_entries(struct compiler *compiler, const uint32_t *entries, uint32_t count)
{
    struct grammar *grammar = compiler->grammar;
    struct error *err = compiler->err;
    uint32_t rest = RULES_NONE;
    bool empty = true; // what comes behind may be
    for (uint32_t i = count; i-- > 0;) {
        const struct ebnf_node *entry = &compiler->tree->nodes[entries[i]];
        bool may_be_empty = entry->may_be_empty;
        uint32_t text = compile(compiler, entries[i]), first = text;
        if (text == RULES_NONE)
            return RULES_NONE;
        if (rest == RULES_NONE) {
            rest = text;
            empty = may_be_empty;
            continue;
        }
        uint32_t behind = empty ? rules_repeat(grammar, rest, RULES_NONE, 0, 1, err) : rest;
        if (may_be_empty && !empty)
            first = rules_repeat(grammar, text, RULES_NONE, 0, 1, err);
        uint32_t ways[] = { rules_sequence(grammar, first, behind, err), rest };
        rest = may_be_empty && empty ? rules_choice(grammar, ways, 2, err) : ways[0];
        empty &= may_be_empty;
        if (rest == RULES_NONE)
            return RULES_NONE;
    }
    return rest;
}

static uint32_t compile_sequence(struct compiler *compiler, uint32_t id)
{
    struct ebnf *tree = compiler->tree;
    struct ebnf_node node = tree->nodes[id];
    uint32_t *entries = memory_new(node.count, sizeof *entries), count = 0, made = RULES_NONE;
    for (uint32_t i = 0; i < node.count; i++) // an entry that is only ever empty says nothing
        if (tree->nodes[tree->links[node.first + i]].has_text)
            entries[count++] = tree->links[node.first + i];
    count = join_runs(compiler, entries, count);
    if (count)
        made = compile_entries(compiler, entries, count);
    free(entries);
    return made;
}

// ---- choices ----

static struct bytes text_of(const struct ebnf *tree, uint32_t id)
{
    const struct ebnf_node *node = &tree->nodes[id];
    return (struct bytes){ tree->texts.data + node->first, node->count };
}

// The texts among the alternatives as one table; RULES_NONE without a sentence where there are none.
static uint32_t compile_texts(struct compiler *compiler, const struct ebnf_node *choice, bool *ok)
{
    const struct ebnf *tree = compiler->tree;
    struct word *words = memory_new(choice->count, sizeof *words);
    uint32_t count = 0, kept = 0, made = RULES_NONE;
    for (uint32_t i = 0; i < choice->count; i++) {
        uint32_t id = tree->links[choice->first + i];
        if (tree->nodes[id].kind == EBNF_TEXT && tree->nodes[id].count)
            words[count++] = (struct word){ .text = text_of(tree, id), .next = RULES_NONE };
    }
    qsort(words, count, sizeof *words, word_order);
    for (uint32_t i = 0; i < count; i++)
        if (!kept || !bytes_equal(words[kept - 1].text, words[i].text))
            words[kept++] = words[i];
    if (kept)
        made = rules_words(compiler->grammar, words, kept, compiler->err);
    *ok = !kept || made != RULES_NONE;
    free(words);
    return made;
}

static uint32_t compile_choice(struct compiler *compiler, uint32_t id)
{
    struct ebnf *tree = compiler->tree;
    struct ebnf_node choice = tree->nodes[id];
    uint32_t *nodes = memory_new(choice.count + 1, sizeof *nodes), made = RULES_NONE;
    size_t count = 0;
    bool ok;
    uint32_t words = compile_texts(compiler, &choice, &ok);
    if (words != RULES_NONE)
        nodes[count++] = words;
    for (uint32_t i = 0; i < choice.count && ok; i++) {
        uint32_t entry = tree->links[choice.first + i];
        if (!tree->nodes[entry].has_text || tree->nodes[entry].kind == EBNF_TEXT)
            continue;
        nodes[count] = compile(compiler, entry);
        ok = nodes[count++] != RULES_NONE;
    }
    if (ok)
        made = rules_choice(compiler->grammar, nodes, count, compiler->err);
    free(nodes);
    return made;
}

static uint32_t compile_repeat(struct compiler *compiler, const struct ebnf_node *node)
{
    bool may_be_empty = compiler->tree->nodes[node->first].may_be_empty;
    uint32_t low = may_be_empty || !node->low ? 1 : node->low, high = node->high;
    uint32_t item = compile(compiler, node->first);
    return low == 1 && high == 1 ? item : rules_repeat(compiler->grammar, item, RULES_NONE, low, high, compiler->err);
}

static uint32_t compile_dfa(struct compiler *compiler, const struct ebnf_node *node)
{
    struct dfa *dfa = &compiler->tree->dfas[node->first], taken = *dfa;
    *dfa = (struct dfa){ 0 }; // each is one part of one rule, which is compiled once
    refuse_empty(&taken);
    return rules_dfa(compiler->grammar, &taken, compiler->err);
}

static uint32_t compile(struct compiler *compiler, uint32_t id)
{
    struct ebnf_node node = compiler->tree->nodes[id];
    struct dfa dfa;
    if (node.kind == EBNF_CLASS)
        return compile_class(compiler, id);
    if (node.kind == EBNF_RULE)
        return compile_rule(compiler, node.first);
    if (node.kind == EBNF_TEXT)
        return rules_literal(compiler->grammar, text_of(compiler->tree, id), compiler->err);
    if (try_automaton(compiler, id, &dfa))
        return rules_dfa(compiler->grammar, &dfa, compiler->err);
    switch (node.kind) {
    case EBNF_SEQUENCE: return compile_sequence(compiler, id);
    case EBNF_CHOICE: return compile_choice(compiler, id);
    case EBNF_REPEAT: return compile_repeat(compiler, &node);
    case EBNF_SCHEMA: return schema_compile(compiler->grammar, compiler->tree->schemas[node.first], compiler->err);
    default: return compile_dfa(compiler, &node);
    }
}

static bool define_rules(struct compiler *compiler)
{
    while (compiler->waiting_count) {
        uint32_t rule = compiler->waiting[--compiler->waiting_count];
        uint32_t node = compile(compiler, compiler->tree->rules[rule].body);
        if (node == RULES_NONE)
            return false;
        rules_define(compiler->grammar, compiler->rules[rule], node);
    }
    return true;
}

uint32_t ebnf_compile(struct ebnf *tree, struct grammar *grammar)
{
    struct compiler compiler = { .tree = tree,
                                 .grammar = grammar,
                                 .rules = memory_new(tree->rule_count, sizeof *compiler.rules),
                                 .waiting = memory_new(tree->rule_count, sizeof *compiler.waiting),
                                 .err = tree->err };
    uint32_t body = tree->rules[tree->root].body, root = RULES_NONE;
    for (uint32_t r = 0; r < tree->rule_count; r++)
        compiler.rules[r] = RULES_NONE;
    if (!tree->nodes[body].has_text)
        ebnf_fail_rule(tree, tree->root, "has no text but the empty one");
    else
        root = compile_all(&compiler, body);
    if (root != RULES_NONE && !define_rules(&compiler))
        root = RULES_NONE;
    free(compiler.rules);
    free(compiler.waiting);
    return root;
}
