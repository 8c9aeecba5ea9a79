// SPDX-License-Identifier: Apache-2.0
// base/utf8.h: UTF-8 decoding and encoding, one code point at a time, strict (no overlong forms, no surrogates, nothing
// past U+10FFFF).
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/bytes.h"

enum { UTF8_BYTES_MAX = 4, UTF8_REPLACEMENT = 0xFFFD };

// Length of the code point at the start of `in` (1..4) with its value in *codepoint;
// 0 when `in` is empty or no valid sequence starts here (a caller then usually skips one byte).
size_t utf8_decode(struct bytes in, uint32_t *codepoint);

// True when `in` is a proper beginning of one valid sequence and only its end is missing.
bool utf8_is_partial(struct bytes in);

bool utf8_is_valid(struct bytes text);
size_t utf8_count(struct bytes text);                             // code points of valid text
size_t utf8_encode(uint32_t codepoint, char out[UTF8_BYTES_MAX]); // invalid ones become U+FFFD

#endif
