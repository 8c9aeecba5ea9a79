// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/save.h: a GGUF's tokenizer as the tokenizer.json that it was made of, or one that gives the same ids.
#ifndef TEXT_TOKENIZER_SAVE_H
#define TEXT_TOKENIZER_SAVE_H

#include <jansson.h>

#include "format/gguf.h"
#include "text/tokenizer.h"

// A new reference; NULL with a sentence where tokenizer.json cannot say what the GGUF does.
json_t *tokenizer_to_json(const struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err);

#endif
