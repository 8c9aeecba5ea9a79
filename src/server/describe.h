// SPDX-License-Identifier: Apache-2.0
// server/describe.h: what the server says of itself and of its model: /v1/models (OpenAI, Anthropic), /props and /slots
// (llama-server), /api/tags, /api/ps and /api/show (Ollama), versions, /tokenizer_info (vLLM). All are new references.
#ifndef SERVER_DESCRIBE_H
#define SERVER_DESCRIBE_H

#include "server/api.h"

struct job;

json_t *describe_version(const struct api *api);
json_t *describe_model(const struct api *api, const char *name, enum api_style style); // by one of its names
json_t *describe_models(const struct api *api, enum api_style style);                  // by all of them
json_t *describe_props(const struct api *api);
json_t *describe_slots(const struct api *api, int running);
json_t *describe_ollama(const struct api *api); // the version of Ollama's API
json_t *describe_tags(const struct api *api);
json_t *describe_running(const struct api *api);
bool describe_show(struct job *job); // kind.h: read, of /api/show

// Appends the tokenizer's configuration as lm_eval and others need it to write prompts themselves:
// tokenizer_config.json without paths, its tokens as texts, the class, and the served chat template. A GGUF has its
// special tokens, the limit of the context and the template.
void describe_tokenizer(const struct api *api, struct strbuf *out);

#endif
