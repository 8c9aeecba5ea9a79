// SPDX-License-Identifier: Apache-2.0
// server/ollama.h: Ollama's API for IDE plugins: a reader that rewrites /api/chat and /api/generate as a chat or a
// completion, a writer of its lines of JSON, and the descriptions of the model. Rows of kind.c and route.c.
#ifndef SERVER_OLLAMA_H
#define SERVER_OLLAMA_H

#include "server/kind.h"

bool ollama_translate_chat(struct job *job); // kind.h: translate
bool ollama_translate_generate(struct job *job);
bool ollama_show(struct job *job); // kind.h: read

extern const struct field_name ollama_field_names[];

// The answer to a request that asks for the model to be loaded, which it is.
void ollama_write_loaded(const struct job *job, struct strbuf *out);

json_t *ollama_tags(const struct api *api); // GET /api/tags (new reference)
json_t *ollama_ps(const struct api *api);   // GET /api/ps (new reference)
json_t *ollama_version(void);               // GET /api/version (new reference)

#endif
