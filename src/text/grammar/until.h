// SPDX-License-Identifier: Apache-2.0
// text/grammar/until.h: automata of free text up to a marker (Aho-Corasick): text in which none of some literals
// occurs, or text that ends with the first of them.
#ifndef TEXT_GRAMMAR_UNTIL_H
#define TEXT_GRAMMAR_UNTIL_H

#include "base/bytes.h"
#include "text/grammar/dfa.h"

enum { UNTIL_BYTES_MAX = 1024, UNTIL_LITERALS_MAX = 64 };

// Valid UTF-8. `wanted` 0: text without any of the literals, the empty one too. Else text that ends with one of the
// first `wanted` literals and has no other occurrence of any of them. Nothing leads back to the start.
bool until_build(const struct bytes *literals, size_t count, size_t wanted, size_t *work, struct dfa *out,
                 struct error *err);

#endif
