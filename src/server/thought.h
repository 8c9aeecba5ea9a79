// SPDX-License-Identifier: Apache-2.0
// server/thought.h: the thought (reasoning) at the beginning of an answer, while it is generated: its tokens are
// counted, it is closed when its budget is used up, and a grammar's masks begin behind it. Runs on the worker's thread,
// inside the engine's listener (generation.c).
#ifndef SERVER_THOUGHT_H
#define SERVER_THOUGHT_H

#include "text/reasoning.h"

struct choice;
struct nibble_token;

struct thought { // zeroed: of a model without a form of reasoning
    struct reasoning_splitter *splitter;
    bool behind;          // the grammar has begun: tokens are the matcher's
    int count, uncertain; // tokens of thoughts; those behind them that may be a close marker's
    struct tokens forced; // to be taken next, from forced_at on, whatever is drawn
    size_t forced_at;
    bool tag_due; // the answer's open tag is to be put in behind them
};

void thought_begin(struct choice *choice, const struct reasoning_sink *sink);
void thought_end(struct thought *thought);

// Masks the next token where it is not the matcher's alone. False: it is.
bool thought_restrict(struct choice *choice, uint32_t *mask, uint64_t *work);
// The token to take in place of `drawn`. *free: the matcher may choose in its turn.
int32_t thought_choose(struct choice *choice, int tokens_left, int32_t drawn, bool *free);
bool thought_chooses(const struct choice *choice); // thought_choose has something to do in this answer

// Takes in a token and its text as the detokenizer wrote it, and feeds the matcher. False: the grammar's answer is
// whole.
bool thought_take(struct choice *choice, const struct nibble_token *token, struct bytes text);
void thought_finish(struct choice *choice, struct bytes rest);

#endif
