// SPDX-License-Identifier: Apache-2.0
// server/messages.h: Anthropic's Messages API: a reader that rewrites /v1/messages as a chat, a writer that puts an
// answer's parts into content blocks, and the token count of a request. Rows of kind.c.
#ifndef SERVER_MESSAGES_H
#define SERVER_MESSAGES_H

#include "server/kind.h"

bool messages_translate(struct job *job); // kind.h: translate
bool messages_count(struct job *job);     // kind.h: read, of a request whose tokens are counted

// The messages of a chat (new reference) that "system" and "messages" are; NULL: job->error is set.
json_t *messages_conversation(struct job *job, const json_t *system, const json_t *messages);

extern const struct field_name messages_field_names[];

#endif
