// SPDX-License-Identifier: Apache-2.0
// server/llama_server.h: the endpoints of llama.cpp's llama-server that its page and tools ask for: /props, /slots,
// /apply-template and /completion.
#ifndef SERVER_LLAMA_SERVER_H
#define SERVER_LLAMA_SERVER_H

#include "server/job.h"

json_t *llama_props(const struct api *api);              // GET /props (new reference)
json_t *llama_slots(const struct api *api, int running); // GET /slots (new reference)

bool llama_apply_template(struct job *job);       // kind.h: read
bool llama_translate_completion(struct job *job); // kind.h: translate

// kind.h: the writer's part, of /completion
bool llama_stream(struct job *job, struct strbuf *out);
bool llama_whole(struct job *job, struct strbuf *out);
void llama_stream_error(const struct api_error *err, struct strbuf *out);

#endif
