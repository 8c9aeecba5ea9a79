// SPDX-License-Identifier: Apache-2.0
// base/pcre.h: PCRE2 with our memory. Small blocks (code, match data, contexts) never fail; PCRE2 says of a large one,
// which only the interpreter's backtracking asks for, that there is none (PCRE2_ERROR_NOMEMORY).
#ifndef BASE_PCRE_H
#define BASE_PCRE_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/bytes.h"

enum { PCRE_MESSAGE_BYTES = 128 };

// What every context and match data is made from; never freed.
pcre2_general_context *pcre_memory(void) __attribute__((returns_nonnull));

// Lines end with LF. NULL: *code says why, and the message is written.
pcre2_code *pcre_compile(struct bytes pattern, uint32_t options, int *code, char message[PCRE_MESSAGE_BYTES]);

#endif
