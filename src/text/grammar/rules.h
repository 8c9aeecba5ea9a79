// SPDX-License-Identifier: Apache-2.0
// text/grammar/rules.h: a context-free grammar over bytes as a graph of nodes, which match.h runs as a pushdown
// automaton.
//   (1) no node leads to itself without a byte in between; such chains are short, and no choice is among choices
//   (2) a node's cost is the length of a text that it can be, found by following `best`; a node that can be nothing has
//       RULES_NEVER and is never entered
//   (3) a node entered at a depth to which its height can be added has a way to its end within RULES_HEIGHT_MAX
#ifndef TEXT_GRAMMAR_RULES_H
#define TEXT_GRAMMAR_RULES_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "text/grammar.h"
#include "text/grammar/dfa.h"
#include "text/grammar/mask_cache.h"

enum {
    RULES_NODES_MAX = 1 << 16,
    RULES_TEXT_BYTES_MAX = 1 << 20, // of all words together
    RULES_DFAS_MAX = 1024,
    RULES_CHOICES_MAX = 512,           // of one node
    RULES_LINKS_MAX = 1 << 20,         // of all of them
    RULES_LEAD_MAX = 256,              // nodes entered one through the other before a byte is read
    RULES_HEIGHT_MAX = 128,            // continuations that wait for their turn: how deep an answer may nest
    RULES_CLOSING_BYTES_MAX = 1 << 14, // the longest way to finish that an answer may be in need of
    RULES_PASSES_MAX = 128,            // of measuring
    RULES_WORK_MAX = 100 << 20,        // nodes and words looked at meanwhile
};

#define RULES_NONE UINT32_MAX      // no node
#define RULES_NEVER UINT32_MAX     // a cost or height: no way to the end
#define RULES_UNBOUNDED UINT32_MAX // a `high`: any number
#define RULES_COST_MAX (UINT32_MAX / 4)

enum node_kind {
    NODE_WORDS,    // one of the words of a table with an index of low .. high, then what follows that word. These are
                   // `count` words from `first` on, and those of `rest`, another such node or RULES_NONE
    NODE_STRING,   // a JSON string with its quotes, of low .. high code points
    NODE_DFA,      // a text that the dfa accepts
    NODE_MARK,     // punctuation of JSON: the byte `first`, with white space before it if `low`, behind it if `high`.
                   // One with white space behind it never ends an answer
    NODE_SEQUENCE, // `first`, then `rest`
    NODE_CHOICE,   // one of `count` nodes from grammar.links[first]
    NODE_REPEAT,   // `first`, low .. high times, `rest` (a leaf, or RULES_NONE) between
};

struct node {
    enum node_kind kind;
    uint32_t first, rest;
    uint32_t count;
    uint32_t low, high;
    uint32_t table; // of words, or a dfa
    uint32_t cost;  // in bytes
    uint32_t height;
    uint32_t best; // WORDS, CHOICE: which one the cost is for
};

struct word {
    struct bytes text; // not empty, different from all others in its table
    uint32_t index;    // the place that the node's low and high speak of
    uint32_t next;     // the node behind it, or RULES_NONE
};

int word_order(const void *a, const void *b); // by their bytes, for qsort

struct word_table {
    struct word *words; // in the order of their bytes
    uint32_t count;
};

// A set of bytes.
struct byte_set {
    uint32_t bits[8];
};

static inline void byte_set_add(struct byte_set *set, uint8_t byte)
{
    set->bits[byte / 32] |= (uint32_t)1 << byte % 32;
}

static inline bool byte_set_has(const struct byte_set *set, uint8_t byte)
{
    return set->bits[byte / 32] >> byte % 32 & 1;
}

struct grammar {
    struct node *nodes;
    struct word_table *tables;
    uint32_t *links;
    struct dfa *dfas;
    uint32_t node_count, table_count, link_count, dfa_count;
    uint32_t node_capacity, table_capacity, link_capacity;
    uint32_t root;
    size_t text_bytes;                     // of all words
    size_t states;                         // of all dfas
    size_t work;                           // that it took to make them
    struct byte_set needs;                 // with these, an answer can be finished from wherever it is
    struct byte_set begins;                // no leaf begins with any other
    struct mask_cache *masks;              // of all its matchers, which have one vocabulary
    struct strbuf unenforced, unsupported; // keywords left to the validator, and those that it lacks
    bool compact;                          // marks have no white space
    atomic_uint sharers;                   // references beside the first
    struct strbuf notice;                  // a sentence for the log
    struct map known;                      // nodes that are made once: by a name that says what they are
    struct arena arena;                    // words
    bool python;                           // values have Python's True, False and None
};

// ---- making rules. Each returns the node, or RULES_NONE with a sentence when a limit is passed ---------------------

uint32_t rules_words(struct grammar *grammar, struct word *words, uint32_t count, struct error *err); // sorts them
// A part of the words of a node: as the fields of a WORDS node say.
uint32_t rules_words_part(struct grammar *grammar, uint32_t words, struct node part, struct error *err);
uint32_t rules_literal(struct grammar *grammar, struct bytes text, struct error *err);
uint32_t rules_string(struct grammar *grammar, uint32_t low, uint32_t high, struct error *err);
// The dfa becomes the grammar's in any case.
uint32_t rules_dfa(struct grammar *grammar, struct dfa *dfa, struct error *err);
uint32_t rules_mark(struct grammar *grammar, char byte, bool before, bool behind, struct error *err); // made once
uint32_t rules_sequence(struct grammar *grammar, uint32_t first, uint32_t rest, struct error *err);
// Without alternatives: never. Alternatives that begin with the same mark are left-factored, so that matching behind
// the mark runs one thread and not hundreds.
uint32_t rules_choice(struct grammar *grammar, const uint32_t *nodes, size_t count, struct error *err);
uint32_t rules_repeat(struct grammar *grammar, uint32_t item, uint32_t separator, uint32_t low, uint32_t high,
                      struct error *err);
// A forward declaration, for recursive schemas; rules_define sets the node.
uint32_t rules_reserve(struct grammar *grammar, struct error *err);
void rules_define(struct grammar *grammar, uint32_t reserved, uint32_t node);

uint32_t rules_add_link(struct grammar *grammar, uint32_t node); // its place in grammar->links

// Nodes that are shared are found by a name.
bool rules_find(const struct grammar *grammar, const char *name, uint32_t *node);
uint32_t rules_name(struct grammar *grammar, const char *name,
                    uint32_t node); // returns the node, which may be RULES_NONE

// The last step: measures every node. Fails where no answer is possible, or only absurd ones.
bool rules_finish(struct grammar *grammar, uint32_t root, struct error *err);

// ---- reading them --------------------------------------------------------------------------------------------------

// May a run that has `depth` continuations waiting enter this node?
static inline bool rules_fit(const struct grammar *grammar, uint32_t node, uint32_t depth)
{
    uint32_t height = grammar->nodes[node].height;
    return height <= RULES_HEIGHT_MAX && depth + height <= RULES_HEIGHT_MAX;
}

static inline bool rules_word_fits(const struct grammar *grammar, const struct node *node, const struct word *word,
                                   uint32_t depth)
{
    return word->index >= node->low && word->index <= node->high
        && (word->next == RULES_NONE || rules_fit(grammar, word->next, depth));
}

static inline uint32_t rules_add(uint32_t a, uint32_t b) // of costs
{
    if (a == RULES_NEVER || b == RULES_NEVER)
        return RULES_NEVER;
    return a + b < RULES_COST_MAX ? a + b : RULES_COST_MAX;
}

uint32_t rules_word_cost(const struct grammar *grammar, const struct word *word); // with what follows it
uint32_t rules_repeat_cost(const struct grammar *grammar, const struct node *node, uint32_t done);

// Appends a shortest text of a node; `done`: how often a REPEAT has been through already.
void rules_write_shortest(const struct grammar *grammar, uint32_t node, uint32_t done, struct strbuf *out);

#endif
