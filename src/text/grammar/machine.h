// SPDX-License-Identifier: Apache-2.0
// text/grammar/machine.h: deterministic automata over bytes, for what is regular: numbers, patterns, formats.
// From every state but MACHINE_DEAD there is a way to the end.
#ifndef TEXT_GRAMMAR_MACHINE_H
#define TEXT_GRAMMAR_MACHINE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    MACHINE_STATES_MAX = 4096, // of one, and of all machines of a grammar together
    MACHINE_NFA_MAX = 16384,   // states before they are made deterministic
    MACHINE_EDGES_MAX = 1 << 17,
    MACHINE_WORK_MAX = 20 << 20, // edges looked at while those of a grammar are made
    MACHINE_DEAD = 0,
    MACHINE_START = 1,
};

struct machine_state {
    uint16_t next[256];
    uint16_t closing; // bytes of the shortest way to the end
    uint8_t toward;   // its first byte
    bool accepts;
    bool continues; // some byte may follow
};

struct machine {
    struct machine_state *states; // heap; a zeroed machine accepts nothing
    uint32_t count;
};

void machine_free(struct machine *machine);

// An automaton in the making: states that several ways lead out of. State 0 is the start, 1 the end.
struct nfa_edge {
    uint32_t from, to;
    uint8_t low, high; // bytes; low > high: none is read
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

// False: a limit was passed. A machine of no states is the answer where nothing is accepted. *work counts what all of
// them have cost together.
bool machine_from_nfa(const struct nfa *nfa, size_t *work, struct machine *out);
bool machine_intersect(const struct machine *a, const struct machine *b, size_t *work, struct machine *out);
bool machine_subtract(const struct machine *a, const struct machine *b, size_t *work, struct machine *out); // a, not b
// Of a machine that accepts JSON strings: those of low .. high code points.
bool machine_limit_length(const struct machine *machine, uint32_t low, uint32_t high, size_t *work,
                          struct machine *out);

#endif
