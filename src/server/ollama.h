// SPDX-License-Identifier: Apache-2.0
// server/ollama.h: Ollama's API for IDE plugins: a reader that rewrites /api/chat and /api/generate as a chat or a
// completion, a writer of its lines of JSON, and the descriptions of the model. Rows of kind.c and route.c.
#ifndef SERVER_OLLAMA_H
#define SERVER_OLLAMA_H

#include "server/kind.h"

bool ollama_translate_chat(struct job *job); // kind.h: translate
bool ollama_translate_generate(struct job *job);
bool ollama_show(struct job *job); // kind.h: read

// kind.h: the writer's part
bool ollama_stream(struct job *job, struct strbuf *out);
bool ollama_whole(struct job *job, struct strbuf *out);
void ollama_stream_error(const struct api_error *err, struct strbuf *out);

extern const struct field_name ollama_field_names[];

// How every answer begins: {"model": ..., "created_at": ...
void ollama_open_answer(const struct job *job, struct strbuf *out);
// Does /api/chat answer, and not /api/generate?
bool ollama_is_chat(const struct job *job);

json_t *ollama_tags(const struct api *api); // GET /api/tags (new reference)
json_t *ollama_ps(const struct api *api);   // GET /api/ps (new reference)
json_t *ollama_version(void);               // GET /api/version (new reference)

#endif
