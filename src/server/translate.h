// SPDX-License-Identifier: Apache-2.0
// server/translate.h: the readers of other APIs, which rewrite a request as a chat or a completion (kind.h: translate),
// or answer it at once (kind.h: read). Their writers are dialects (kind.h).
#ifndef SERVER_TRANSLATE_H
#define SERVER_TRANSLATE_H

#include "server/kind.h"

// ---- Anthropic's Messages API

bool messages_translate(struct job *job);
bool messages_count(struct job *job); // read: the tokens of a request
// The messages of a chat (new reference) that "system" and "messages" are; NULL: job->error is set.
json_t *messages_conversation(struct job *job, const json_t *system, const json_t *messages);
extern const struct field_name messages_field_names[];

// ---- Ollama's API, for IDE plugins

bool ollama_translate_chat(struct job *job);
bool ollama_translate_generate(struct job *job);
// The answer to a request that asks for the model to be loaded, which it is.
void ollama_write_loaded(const struct job *job, struct strbuf *out);
extern const struct field_name ollama_field_names[];

// ---- llama.cpp's llama-server, for its page and tools

bool llama_apply_template(struct job *job); // read
bool llama_translate_completion(struct job *job);

// Puts what a translation makes in the place of job->json. False: it is refused.
bool translate_json(struct job *job, bool (*translate)(struct job *job, json_t *body));

#endif
