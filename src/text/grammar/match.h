// SPDX-License-Identifier: Apache-2.0
// text/grammar/match.h: a pushdown automaton over bytes, simulated with all of its possible states at once. Each is a
// thread: a leaf that reads the next byte, with a stack of nodes to enter behind it.
//   (1) every thread has a way to the end
//   (2) a set of threads and the stacks it grew are thrown away by setting the counts back
//   (3) threads past the limit are left out, which makes fewer answers possible, never an invalid one
#ifndef TEXT_GRAMMAR_MATCH_H
#define TEXT_GRAMMAR_MATCH_H

#include "text/grammar/rules.h"

enum { MATCH_THREADS_MAX = 512, MATCH_WORK_PER_THREAD = 32 };

struct thread {
    uint32_t node;  // WORDS, STRING, DFA or MARK
    uint32_t stack; // what comes behind it
    uint32_t at;    // WORDS: the first word that it may still be; STRING, DFA: the state; MARK: its byte was read
    uint32_t end;   // WORDS: the end of those words; MARK: line breaks read, before or behind it
    uint32_t count; // WORDS: bytes read; STRING: characters begun; MARK: blanks read
};

// A node that waits below others. Entry 0 is the bottom.
struct stack_entry {
    uint32_t node, done; // `done`: how often a REPEAT has been through
    uint32_t parent;
    uint32_t depth;
    uint32_t closing; // the fewest bytes from here to the end of the answer
    uint64_t seen;    // the last step that came back to it
};

struct thread_set {
    uint32_t begin, count; // among match.threads
    bool final;            // the answer may end here
};

struct match {
    const struct grammar *grammar;
    struct thread *threads;
    uint32_t thread_count, thread_capacity;
    struct stack_entry *stacks;
    uint32_t stack_count, stack_capacity;
    uint64_t step;
    uint64_t work; // done so far, in steps of a few nanoseconds; callers with a limit on time read it
};

void match_open(struct match *match, const struct grammar *grammar);
void match_close(struct match *match);

static inline bool match_is_dead(const struct thread_set *set) { return !set->count && !set->final; }

void match_add(struct match *match, struct thread_set *set, struct thread thread); // to the set that was begun last
// Each appends a new set to match.threads.
struct thread_set match_start(struct match *match);
struct thread_set match_byte(struct match *match, struct thread_set from, uint8_t byte);
struct thread_set match_behind(struct match *match, uint32_t stack); // where what was on top of `stack` has ended

// The fewest bytes to the end of the answer, and which thread has them.
uint32_t match_closing(const struct match *match, struct thread_set set, uint32_t *thread);
void match_write_closing(const struct match *match, const struct thread *thread, struct strbuf *out);

// Makes `set` the only one, and gives back what only others needed.
struct thread_set match_keep(struct match *match, struct thread_set set);

#endif
