// SPDX-License-Identifier: Apache-2.0
// base/suggest.h: "did you mean ...?" for a mistyped word: bounded Damerau-Levenshtein distance. Letters are compared
// without case, `_` is `-`, and dashes in front do not count.
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

#include "base/bytes.h"

// The nearest of `count` words, or NULL if none is near. A word is near if it
//   (1) differs in at most a quarter of the letters typed, at least one; a wrong first letter counts twice;
//   (2) else begins with what was typed, three letters at least (temp: temperature);
//   (3) else has whole words between dashes more or fewer, before or after (model-len: max-model-len).
const char *suggest(struct bytes word, const char *const *words, size_t count);

#endif
