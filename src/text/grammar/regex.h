// SPDX-License-Identifier: Apache-2.0
// text/grammar/regex.h: regexes as syntax trees (ebnf.h), in ECMA 262's spelling or Python's: what is regular of them.
// \d, \w and \s are ASCII.
#ifndef TEXT_GRAMMAR_REGEX_H
#define TEXT_GRAMMAR_REGEX_H

#include "text/grammar/ebnf.h"

struct regex_style {
    bool ecma;         // . and negated classes have no control characters, so that engines that differ there agree
    bool wide;         // of ecma: with all that any engine might let pass
    bool search;       // ^ and $ at the ends of an alternative are read; without them, any text may stand there,
    bool starts, ends; // but for the beginning of each alternative, or the end
    bool *loose; // becomes true where an assertion or \p is passed over; NULL: they are refused, unless it is wide
};

// EBNF_NONE with a sentence. `flags`: letters: i (ASCII letters of either case), s (. takes line breaks, too), u.
uint32_t regex_read(struct ebnf *tree, struct bytes pattern, struct bytes flags, const struct regex_style *style);

// The place behind the first `wanted` from `at` on that is outside of classes and, but for the one that begins at `at`,
// of groups; 0: there is none.
size_t regex_find(struct bytes pattern, size_t at, char wanted);
bool regex_is_look_ahead(struct bytes rest);

#endif
