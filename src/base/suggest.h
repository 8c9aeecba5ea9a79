// SPDX-License-Identifier: Apache-2.0
// base/suggest.h: what somebody who mistyped a word may have meant.
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

#include "base/bytes.h"

// The nearest of `count` words by edits, or NULL when none is near enough to be meant.
const char *suggest(struct bytes word, const char *const *words, size_t count);

#endif
