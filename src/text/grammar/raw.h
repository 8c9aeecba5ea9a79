// SPDX-License-Identifier: Apache-2.0
// text/grammar/raw.h: strings that stand unescaped between markers, as parameters of tool calls do.
#ifndef TEXT_GRAMMAR_RAW_H
#define TEXT_GRAMMAR_RAW_H

#include "text/grammar/rules.h"

// The node of a raw string and the text that closes it: strings whose JSON text `json` accepts. They do not contain
// `close`, nor what is left of it without the line breaks that it begins with. plain: they do not begin like a list or
// an object. RULES_NONE without a sentence: a limit is passed, or there are none.
uint32_t raw_node(struct grammar *grammar, const struct dfa *json, struct bytes close, bool plain);

#endif
