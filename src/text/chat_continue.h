// SPDX-License-Identifier: Apache-2.0
// text/chat_continue.h: continue_final_message: a prompt that ends where the last message's content ends, so that the
// model goes on with it (Hugging Face's apply_chat_template).
#ifndef TEXT_CHAT_CONTINUE_H
#define TEXT_CHAT_CONTINUE_H

#include "text/chat.h"

// Does the request ask for that? *asked. False with a sentence when it contradicts itself, or when its last message is
// not an assistant's without calls: to be asked before calls become words.
bool chat_asks_to_continue(const json_t *request, bool *asked, struct error *err);

// As chat_render, for a request that asks for it.
bool chat_continue(const struct chat *chat, const json_t *request, struct strbuf *out, struct error *err);

#endif
