// SPDX-License-Identifier: Apache-2.0
// text/grammar/dfa.h: deterministic finite automata over bytes, the one form of everything regular in a schema:
// regexes, formats, string lengths, number ranges and multiples. From every state but DFA_DEAD a path leads to an
// accepting one.
#ifndef TEXT_GRAMMAR_DFA_H
#define TEXT_GRAMMAR_DFA_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    DFA_STATES_MAX = 4096, // of one, and of all automata of a grammar together
    NFA_STATES_MAX = 16384,
    NFA_EDGES_MAX = 1 << 17,
    DFA_WORK_MAX = 20 << 20, // edges visited while the automata of one grammar are built
    DFA_STATE_BYTES_MAX = 24,
    DFA_DEAD = 0,
    DFA_START = 1,
};

struct dfa_state {
    uint16_t next[256];
    uint16_t closing; // bytes of the shortest path to an accepting state
    uint8_t toward;   // the first byte of that path
    bool accepts;
    bool continues; // some byte leads on
};

struct dfa {
    struct dfa_state *states; // heap; a zeroed automaton accepts nothing
    uint32_t count;
};

void dfa_free(struct dfa *dfa);

// A nondeterministic automaton under construction (Thompson). State 0 is the start, 1 the end.
struct nfa_edge {
    uint32_t from, to;
    uint8_t low, high; // bytes; low > high: an epsilon edge
};

struct nfa {
    struct nfa_edge *edges;
    uint32_t edge_count, edge_capacity, state_count;
    bool full; // a limit was passed; nothing is added any more
};

enum { NFA_START, NFA_END, NFA_FIRST_FREE };

uint32_t nfa_state(struct nfa *nfa);
void nfa_bytes(struct nfa *nfa, uint32_t from, uint32_t to, uint8_t low, uint8_t high);
void nfa_skip(struct nfa *nfa, uint32_t from, uint32_t to);
void nfa_free(struct nfa *nfa);

// An automaton given by what its states stand for. Equal states have equal bytes.
struct dfa_source {
    const void *context;
    size_t state_bytes; // at most DFA_STATE_BYTES_MAX
    bool (*accepts)(const void *context, const void *state);
    bool (*step)(const void *context, const void *state, uint8_t byte, void *next); // false: no edge
};

// Each returns false when a limit is passed. An automaton without states is the result where nothing is accepted. *work
// counts what all automata of a grammar have cost together.
bool dfa_from_nfa(const struct nfa *nfa, size_t *work, struct dfa *out); // subset construction
bool dfa_build(const struct dfa_source *source, const void *start, size_t *work, struct dfa *out);
bool dfa_intersect(const struct dfa *a, const struct dfa *b, size_t *work, struct dfa *out);
bool dfa_subtract(const struct dfa *a, const struct dfa *b, size_t *work, struct dfa *out); // accepted by a, not by b
// `dfa` accepts JSON strings; *out accepts those of low .. high code points.
bool dfa_limit_length(const struct dfa *dfa, uint32_t low, uint32_t high, size_t *work, struct dfa *out);
void dfa_minimise(struct dfa *dfa, size_t *work); // Moore's algorithm

#endif
