// SPDX-License-Identifier: Apache-2.0
// base/pcre.h: PCRE2 with nibble's allocator. Small blocks (code, match data, contexts) never fail. A large block,
// which only the interpreter's backtracking needs, can fail with PCRE2_ERROR_NOMEMORY.
#ifndef BASE_PCRE_H
#define BASE_PCRE_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/bytes.h"

enum { PCRE_MESSAGE_BYTES = 128 };

// The general context for all contexts and match data; never freed.
pcre2_general_context *pcre_memory(void) __attribute__((returns_nonnull));

// Compiles with LF as newline. On NULL, *code is the PCRE2 error and `message` its text.
pcre2_code *pcre_compile(struct bytes pattern, uint32_t options, int *code, char message[PCRE_MESSAGE_BYTES]);

#endif
