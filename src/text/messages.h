// SPDX-License-Identifier: Apache-2.0
// text/messages.h: a conversation as clients send it, brought into the shape that templates were written for.
#ifndef TEXT_MESSAGES_H
#define TEXT_MESSAGES_H

#include <jansson.h>

#include "base/error.h"
#include "base/strbuf.h"

#define MESSAGE_THOUGHT "reasoning_content"

enum { MESSAGES_ARGUMENTS_BYTES_MAX = 64 << 20 }; // of memory for the arguments of all earlier calls

// A new list of messages, each an object with a role and a content. Contents that are absent or null become "", lists
// of parts one text (unless `keep_lists`, which leaves a user's list a list); the arguments of earlier calls, a string
// in the protocol, become the object they spell; an assistant's thoughts, which clients send under several keys or as
// parts of the content, are a text under MESSAGE_THOUGHT; a developer is the system. The caller may change the
// messages, their calls and these calls' functions. NULL with a sentence that names the field: what is no conversation,
// or holds what a model of text cannot read.
json_t *messages_normalise(const json_t *messages, bool keep_lists, struct error *err);

// For templates that read contents as lists alone: every text becomes a list of one part.
void messages_as_lists(json_t *messages);

// For templates that refuse a system message: the first message, which is one, goes in front of the user's text.
void messages_fold_system(json_t *messages);

// ---- one message --------------------------------------------------------------------------------------------------

bool message_has_role(const json_t *message, const char *role);
struct bytes message_text(const json_t *message);            // its content; none when that is no string
void message_set_text(json_t *message, struct strbuf *text); // empties the buffer

#endif
