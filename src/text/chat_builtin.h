// SPDX-License-Identifier: Apache-2.0
// text/chat_builtin.h: chat templates for checkpoints that bring none, chosen by the special tokens of the vocabulary:
// a model that was given tokens for turns was given them in one of few known forms.
#ifndef TEXT_CHAT_BUILTIN_H
#define TEXT_CHAT_BUILTIN_H

#include "text/tokenizer.h"

struct chat_builtin {
    const char *family;      // "ChatML"
    const char *begin, *end; // the tokens around a turn's role, and behind the turn
    const char *source;      // the template
};

// NULL where the vocabulary has no such tokens, or the one behind a turn would not end an answer.
const struct chat_builtin *chat_builtin_find(const struct tokenizer *tokenizer);

#endif
