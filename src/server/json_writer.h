// SPDX-License-Identifier: Apache-2.0
// server/json_writer.h: a streaming JSON serialiser: values are appended to a buffer as they come, so that an
// answer of any size is written piece by piece. The bytes are those that jansson prints with api_dump's flags.
#ifndef SERVER_JSON_WRITER_H
#define SERVER_JSON_WRITER_H

#include "base/strbuf.h"

// Appends JSON by a pattern: %s is a string as it is, %q one in quotes, %b the same of struct bytes, %d an int, %z a
// size_t, %l a long long.
void json_write(struct strbuf *out, const char *pattern, ...);

void json_write_text(struct strbuf *out, struct bytes text);        // in quotes; what is not UTF-8 becomes U+FFFD
void json_write_text_inside(struct strbuf *out, struct bytes text); // the same without the quotes
void json_write_logprob(struct strbuf *out, float logprob);         // as JSON can have it: not below -9999

// The length of a beginning of `text` of at most `limit` bytes that does not end inside a character.
size_t json_text_cut(struct bytes text, size_t limit);

#endif
