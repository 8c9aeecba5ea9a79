// SPDX-License-Identifier: Apache-2.0
// cli/history.h: the messages of a chat, a JSON list as templates take it. A turn is a user's message and the answer to
// it; a system message before the first turn belongs to none.
#ifndef CLI_HISTORY_H
#define CLI_HISTORY_H

#include <jansson.h>

#include "nibble.h"

// False when the text is not UTF-8, which a message has to be.
bool history_add(json_t *messages, const char *role, const char *content, size_t len, struct error *err);

// The model's own words. It may have written bytes that are no text; those become U+FFFD.
void history_add_reply(json_t *messages, const struct nibble_text *answer);

// Drops the oldest turn. False: only the latest one is left, which stays.
bool history_drop_oldest_turn(json_t *messages);

#endif
