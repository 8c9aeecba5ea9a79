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

// ---- what a chat consists of; all are new references

// Puts what a translation makes in the place of job->json. False: it is refused.
bool translate_json(struct job *job, bool (*translate)(struct job *job, json_t *body));
json_t *translate_text(struct strbuf *text);                      // which is freed
json_t *translate_last(const json_t *messages, const char *role); // borrowed; NULL: the last one has another role
json_t *translate_part(json_t *text);                             // of a content
void translate_call(json_t *message, json_t *id, json_t *name, json_t *arguments);  // one more of a message
void translate_result(json_t *messages, json_t *id, json_t *content, json_t *name); // content: taken; name: or NULL
json_t *translate_schema(const char *name, const json_t *schema);                   // a response_format
json_t *translate_named_tool(const json_t *name);                                   // a tool_choice

#endif
