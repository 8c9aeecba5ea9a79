// SPDX-License-Identifier: Apache-2.0
// cli/run_thought.h: a streamed answer of `nibble run`: the model's thought goes to stderr, on a terminal dimmed, with
// words that wrap and the time it took, and the answer to stdout.
#ifndef CLI_RUN_THOUGHT_H
#define CLI_RUN_THOUGHT_H

#include "cli/run_session.h"
#include "cli/wrap.h"

struct run_thought {
    struct nibble_reasoning *reasoning; // NULL: all text is the answer
    struct nibble_text piece;           // decoded, and not taken apart yet
    struct nibble_text text;            // of the thought, and not printed yet
    bool open, ended_line;              // a thought was printed last; its last byte was a line end
    bool hidden, wraps;                 // its text is not printed; words wrap at the terminal's width
    double begun;                       // by clock_now
    struct wrap wrap;
};

void run_thought_open(struct run_thought *thought, struct nibble_reasoning *reasoning, const struct session *session);
// Both decode into thought->piece first. The answer's text is appended to *answer.
void run_thought_take(struct run_thought *thought, struct nibble_text *answer);
void run_thought_finish(struct run_thought *thought, struct nibble_text *answer);
void run_thought_free(struct run_thought *thought);

#endif
