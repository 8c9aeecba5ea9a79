// SPDX-License-Identifier: Apache-2.0
// text/tokenizer.h: tokenizers of Hugging Face (tokenizer.json) and GGUF: byte-level BPE and SentencePiece BPE, with
// the same ids as the original.
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"
#include "format/checkpoint.h"

struct tokenizer; // immutable once open: any number of threads may use it

struct tokens {
    int32_t *ids; // heap; a zeroed struct is an empty list
    size_t count, capacity;
};

void tokens_add(struct tokens *tokens, int32_t id);
void tokens_free(struct tokens *tokens);

// From a GGUF's tokenizer.ggml.* keys, or tokenizer.json with tokenizer_config.json.
struct tokenizer *tokenizer_open(const struct checkpoint *checkpoint, struct error *err); // NULL on failure
void tokenizer_close(struct tokenizer *tokenizer);

// Treatment of special tokens, as bits.
enum {
    TOKENIZE_ADD_SPECIAL = 1,   // put BOS / EOS where the tokenizer adds them
    TOKENIZE_PARSE_SPECIAL = 2, // recognise special tokens written out in the text (other added tokens always are)
};

// Appends to *out. Fails only on text past the limit, or that the tokenizer's own regexes need absurdly long for.
// Invalid UTF-8 is tokenised byte by byte where the vocabulary can.
bool tokenizer_encode(const struct tokenizer *tokenizer, struct bytes text, int flags, struct tokens *out,
                      struct error *err);

// The same until *cancelled is true, which another thread may set: then it fails soon.
bool tokenizer_encode_while(const struct tokenizer *tokenizer, struct bytes text, int flags,
                            const atomic_bool *cancelled, struct tokens *out, struct error *err);

int tokenizer_size(const struct tokenizer *tokenizer); // ids are 0 .. size-1
// As the vocabulary writes it; empty for ids without a token.
struct bytes tokenizer_piece(const struct tokenizer *tokenizer, int32_t id);
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id); // control tokens: BOS, EOS, <|im_end|> ...
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id);     // generation stops here (EOS, EOT, EOM ...)
int32_t tokenizer_bos(const struct tokenizer *tokenizer);                 // -1: none
int32_t tokenizer_eos(const struct tokenizer *tokenizer);                 // -1: none
// Tokens of fill in the middle that a GGUF names: of prefix, suffix and middle; -1: not named.
void tokenizer_fim(const struct tokenizer *tokenizer, int32_t out[3]);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
int32_t tokenizer_find(const struct tokenizer *tokenizer, struct bytes piece); // id of a vocabulary entry, -1: none

// Decoding is a stream: bytes appear as soon as they are certain, and never half a UTF-8 character.
// A zeroed detokenizer (with the tokenizer set) is at the start of a text.
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special;          // leave special tokens out of the text,
    const struct tokens *shown; // but for these; NULL: none
    bool started;               // the first piece's leading space rule has been applied
    char pending[16];           // an incomplete UTF-8 sequence
    size_t pending_count;
};

void detokenizer_add(struct detokenizer *state, int32_t id, struct strbuf *out);
void detokenizer_finish(struct detokenizer *state, struct strbuf *out); // what is pending, as it is

#endif
