// SPDX-License-Identifier: Apache-2.0
// text/grammar/matcher.h: the state of one answer under a grammar (XGrammar's GrammarMatcher).
//   free     threads follow the accepted tokens
//   forced   the token budget is just enough for a shortest completion, which is taken token by token
#ifndef TEXT_GRAMMAR_MATCHER_H
#define TEXT_GRAMMAR_MATCHER_H

#include "text/grammar/match.h"
#include "text/grammar/vocabulary.h"

enum {
    MATCHER_WORK_MAX = 2 << 20, // for one mask; what was not looked at by then is not allowed
};

struct matcher {
    struct match match;
    const struct grammar_vocabulary *vocabulary;
    struct thread_set now;
    bool first; // nothing has been written yet
    bool ended; // by an end token
    bool forced;
    struct tokens rest; // forced: the tokens to come, from rest_at on
    size_t rest_at;
    uint32_t *allowed;   // the mask being made
    uint32_t *spare;     // another, for a part of it
    struct strbuf state; // of the threads now
};

// The shortest rest of an answer that is at `set`, in tokens.
bool matcher_write_rest(const struct matcher *matcher, struct thread_set set, bool first, struct tokens *out);

#endif
