// SPDX-License-Identifier: Apache-2.0
// server/tokenizer_info.h: the tokenizer's configuration as vLLM's /tokenizer_info has it: what lm_eval and others need
// to write prompts themselves.
#ifndef SERVER_TOKENIZER_INFO_H
#define SERVER_TOKENIZER_INFO_H

#include "server/api.h"

// Appends an object: tokenizer_config.json without paths, its tokens as texts, the class, and the served chat template.
// A GGUF has its special tokens, the limit of the context and the template.
void tokenizer_info_write(const struct api *api, struct strbuf *out);

#endif
