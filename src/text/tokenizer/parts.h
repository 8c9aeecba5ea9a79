// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/parts.h: the stages of a tokenizer, as in Hugging Face `tokenizers`. The readers (gguf.c, json.c) fill
// it in, tokenizer.c encodes with it and detokenizer.c decodes.
//   text -> added tokens in it -> normalizer -> added tokens in normalised text -> pre-tokenizer -> merges -> ids
#ifndef TEXT_TOKENIZER_PARTS_H
#define TEXT_TOKENIZER_PARTS_H

#include "text/tokenizer/added.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer.h"
#include "text/tokenizer/vocab.h"

enum {
    TOKENIZER_TEXT_BYTES_MAX = 128 << 20,
    TOKENIZER_STEPS_MAX = 64, // normalizers, pre-tokenizers and decoders of one tokenizer.json
};

#define TOKENIZER_SIGN "\xE2\x96\x81"                                 // U+2581, SentencePiece's space
#define TOKENIZER_DEEPSEEK(name) "<\xEF\xBD\x9C" name "\xEF\xBD\x9C>" // in full-width bars

// Decoder steps, applied in order to the piece of one token.
enum decode_kind {
    DECODE_BYTE_LEVEL,    // letters of the byte alphabet to bytes
    DECODE_BYTE_FALLBACK, // <0x0A> to the byte
    DECODE_REPLACE,       // each match of `regex` by `content`
    DECODE_STRIP,         // up to `start` and `stop` times `content` off the ends
};

struct decode_step {
    enum decode_kind kind;
    struct regex *regex;  // owned
    struct bytes content; // borrowed
    bool drop_at_start;   // REPLACE: by nothing in the first token of a text
    size_t start, stop;
};

struct decoder {
    struct decode_step *steps; // heap
    size_t count;
    struct bytes between; // goes between any two tokens
    struct bytes strip;   // comes off the beginning of the text, once
};

void decoder_add(struct decoder *decoder, struct decode_step step);

struct tokenizer {
    struct vocab vocab;
    struct added raw, normalized; // the added tokens, by the text they are looked for in
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct bpe bpe;
    struct decoder decoder;
    struct tokens prefix, suffix; // around every text, with TOKENIZE_ADD_SPECIAL
    int32_t bytes[256];           // for bytes that are not UTF-8; -1: they are left out
    int32_t bos, eos;
    struct {
        bool named;
        int32_t ids[3];
    } fim;              // prefix, suffix, middle
    struct arena arena; // what the parts borrow
};

bool tokenizer_read_gguf(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err);
bool tokenizer_read_json(struct tokenizer *tokenizer, const struct checkpoint *checkpoint, struct error *err);

// The normalizer, pre_tokenizer and decoder of a tokenizer.json.
bool tokenizer_read_json_steps(struct tokenizer *tokenizer, const json_t *json, struct error *err);

// Tokens that mean the end of an answer, whatever the file says about them.
extern const char tokenizer_end_names[]; // separated by spaces

#endif
