// SPDX-License-Identifier: Apache-2.0
// text/grammar/ecma.h: ECMA 262 regexes on PCRE2, to check finished texts: look-around, back references, \b and \p are
// understood here, where masks (pattern.h) cannot follow them. A search is bounded in steps and memory.
#ifndef TEXT_GRAMMAR_ECMA_H
#define TEXT_GRAMMAR_ECMA_H

#include "base/bytes.h"
#include "base/error.h"

enum { ECMA_STEPS_MAX = 20000, ECMA_HEAP_KIB_MAX = 4096 };

struct ecma;

// NULL with a sentence: it is no regex, or one that PCRE2 does not have (`beyond`, which may be NULL): a repetition of
// 65536 times and more, a look-behind of no bounded length.
struct ecma *ecma_new(struct bytes pattern, bool *beyond, struct error *err);
void ecma_free(struct ecma *ecma);

enum ecma_match { ECMA_FOUND, ECMA_ABSENT, ECMA_GAVE_UP };
enum ecma_match ecma_search(const struct ecma *ecma, struct bytes text); // anywhere in valid UTF-8

#endif
