// SPDX-License-Identifier: Apache-2.0
// text/grammar/leaf.h: one byte of a terminal (a string, an automaton or a mark), inlined into the two loops that spend
// their time here: matching and mask computation.
#ifndef TEXT_GRAMMAR_LEAF_H
#define TEXT_GRAMMAR_LEAF_H

#include "text/grammar/match.h"
#include "text/grammar/space.h"
#include "text/grammar/string.h"

enum leaf_result {
    LEAF_DEAD,
    LEAF_INSIDE, // the byte belongs to the leaf, which goes on
    LEAF_MAY_END,
    LEAF_ENDS,
    LEAF_LEFT, // MARK: the byte begins the node behind the mark and its white space. That node is entered only then,
               // so that a run of white space costs one thread
};

static inline enum leaf_result leaf_step_string(const struct node *node, struct thread *thread, uint8_t byte)
{
    enum string_state next = string_step(thread->at, byte);
    if (next == STRING_CLOSED)
        return thread->count >= node->low ? LEAF_ENDS : LEAF_DEAD;
    if (string_begins_character(thread->at, next)) {
        if (thread->count == node->high)
            return LEAF_DEAD;
        thread->count += node->high != RULES_UNBOUNDED || thread->count < node->low;
    }
    thread->at = next;
    return next == STRING_DEAD ? LEAF_DEAD : LEAF_INSIDE;
}

static inline enum leaf_result leaf_step_dfa(const struct dfa_state *states, struct thread *thread, uint8_t byte)
{
    thread->at = states[thread->at].next[byte];
    const struct dfa_state *state = &states[thread->at];
    if (thread->at == DFA_DEAD)
        return LEAF_DEAD;
    return !state->accepts ? LEAF_INSIDE : state->continues ? LEAF_MAY_END : LEAF_ENDS;
}

static inline enum leaf_result leaf_step_mark(const struct grammar *grammar, struct thread *thread, uint8_t byte)
{
    const struct node *node = &grammar->nodes[thread->node];
    struct space space = { thread->end, thread->count };
    if ((thread->at ? node->high : node->low) && space_step(&space, byte)) {
        thread->end = space.lines;
        thread->count = space.blanks;
        return LEAF_INSIDE;
    }
    if (thread->at)
        return byte_set_has(&grammar->begins, byte) ? LEAF_LEFT : LEAF_DEAD;
    if (byte != node->first)
        return LEAF_DEAD;
    thread->at = true;
    thread->end = thread->count = 0;
    return node->high ? LEAF_INSIDE : LEAF_ENDS;
}

// Moves the thread of a STRING, DFA or MARK by one byte.
static inline enum leaf_result leaf_step(const struct grammar *grammar, struct thread *thread, uint8_t byte)
{
    const struct node *node = &grammar->nodes[thread->node];
    if (node->kind == NODE_DFA)
        return leaf_step_dfa(grammar->dfas[node->table].states, thread, byte);
    return node->kind == NODE_STRING ? leaf_step_string(node, thread, byte) : leaf_step_mark(grammar, thread, byte);
}

#endif
