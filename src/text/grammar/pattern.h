// SPDX-License-Identifier: Apache-2.0
// text/grammar/pattern.h: regexes as JSON schemas use them, as dfas over the bytes of an answer. What is read is
// the part of ECMA 262 that is regular: literals, ., classes, \d \w \s, groups, |, * + ? {n,m}, ^ and $ at the ends,
// and look-ahead right behind the first ^. Classes by letter are those of ASCII, and . is no control character, so
// that no two readers of the dialect disagree about an answer. Other assertions (look-around, \b, ^ and $ inside) and
// \p can be passed over: the dfa then accepts more than the pattern. Back references are refused.
#ifndef TEXT_GRAMMAR_PATTERN_H
#define TEXT_GRAMMAR_PATTERN_H

#include "base/bytes.h"
#include "base/error.h"
#include "text/grammar/dfa.h"

enum { PATTERN_BYTES_MAX = 4096, PATTERN_DEPTH_MAX = 64, PATTERN_REPEAT_MAX = 4096 };

enum pattern_form {
    PATTERN_WHOLE,  // the text itself, and all of it is matched: ^ and $ at the ends say nothing
    PATTERN_STRING, // as the content of a JSON string, between its quotes and escaped where JSON asks for it
    PATTERN_WIDE,   // the same, and all that any reader of regexes might let pass: what is outside does not match
};

// Makes *dfa one that accepts what the pattern does, or with `both`, what it accepts already and the pattern does,
// too. *loose becomes true where it accepts more than the pattern; with NULL such a pattern is refused. *work: as in
// dfa.h. On failure the dfa is freed.
bool pattern_compile(struct bytes pattern, enum pattern_form form, bool both, size_t *work, struct dfa *dfa,
                     bool *loose, struct error *err);
// Takes out of *dfa, which accepts JSON strings, those that the pattern matches. On failure the dfa stays.
bool pattern_exclude(struct bytes pattern, size_t *work, struct dfa *dfa, struct error *err);

#endif
