// SPDX-License-Identifier: Apache-2.0
// text/grammar/pattern.h: ECMA 262 regexes to automata over the bytes of an answer, for `pattern` and `format`. The
// subset is the regular one: literals, ., classes, \d \w \s, groups, |, * + ? {n,m}, ^ and $ at the ends, and
// look-ahead directly behind the first ^. \d, \w and \s are ASCII, and . matches no control character, so that regex
// engines that differ there still agree about an answer. Other assertions (look-around, \b, ^ and $ inside) and \p can
// be skipped: the automaton then accepts more than the pattern. Back references are refused.
#ifndef TEXT_GRAMMAR_PATTERN_H
#define TEXT_GRAMMAR_PATTERN_H

#include "base/bytes.h"
#include "base/error.h"
#include "text/grammar/dfa.h"

enum { PATTERN_BYTES_MAX = 4096 };

enum pattern_form {
    PATTERN_WHOLE,  // the text itself, and all of it is matched: ^ and $ at the ends say nothing
    PATTERN_STRING, // as the content of a JSON string, between its quotes and escaped where JSON asks for it
    PATTERN_WIDE,   // the same, and all that any reader of regexes might let pass: what is outside does not match
};

// *dfa becomes the automaton of the pattern or, with `both`, its intersection with the one that is there. *loose
// becomes true where it accepts more than the pattern; with NULL such a pattern is refused. *work: as in dfa.h. On
// failure the dfa is freed.
bool pattern_compile(struct bytes pattern, enum pattern_form form, bool both, size_t *work, struct dfa *dfa,
                     bool *loose, struct error *err);
// Takes out of *dfa, which accepts JSON strings, those that the pattern matches. On failure the dfa stays.
bool pattern_exclude(struct bytes pattern, size_t *work, struct dfa *dfa, struct error *err);

#endif
