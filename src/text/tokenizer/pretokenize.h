// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/pretokenize.h: pre-tokenizers: steps that split text into pieces, which merges never cross. The
// published pre- tokenizers (ByteLevel, Metaspace, Digits, Punctuation ...) are all made of these four.
#ifndef TEXT_PRETOKENIZE_H
#define TEXT_PRETOKENIZE_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"
#include "text/tokenizer/regex.h"

// The regex of GPT-2, which the ByteLevel pre-tokenizer carries.
#define PRETOKENIZE_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

// Treatment of a match (SplitDelimiterBehavior of `tokenizers`): dropped, a piece of its own, one piece with adjacent
// matches, or joined to one side.
enum split_behavior { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_CONTIGUOUS, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT };

enum pretokenize_kind {
    PRETOKENIZE_SPLIT,   // at the matches of `regex`
    PRETOKENIZE_REPLACE, // each match of `regex` in a piece by `content`
    PRETOKENIZE_PREFIX,  // `content` in front of a piece that does not start with it
    PRETOKENIZE_BYTES,   // each byte to its letter of the byte alphabet
};

struct pretokenize_step {
    enum pretokenize_kind kind;
    struct regex *regex; // owned
    enum split_behavior behavior;
    bool invert;          // what does not match counts as the match
    size_t group;         // a match falls into groups of so many characters, counted from its end; 0: none
    bool first_only;      // PREFIX: only where the whole text begins
    struct bytes content; // borrowed
};

struct pretokenizer {
    struct pretokenize_step *steps; // heap; a zeroed struct leaves the text whole
    size_t count;
};

void pretokenizer_add(struct pretokenizer *pretokenizer, struct pretokenize_step step);
// A split at the matches of a published regex.
bool pretokenizer_add_split(struct pretokenizer *pretokenizer, struct bytes pattern, enum split_behavior behavior,
                            bool invert, struct error *err);
void pretokenizer_free(struct pretokenizer *pretokenizer);

struct piece {
    size_t begin, end;
};

// Pieces of a text, in order, none of them empty.
struct pieces {
    struct strbuf text;
    struct piece *items;
    size_t count, capacity;
    bool beheaded; // what the text began with has been removed
};

void pieces_free(struct pieces *pieces);

enum {
    PRETOKENIZE_AT_START = 1,  // the text is the very beginning
    PRETOKENIZE_CONTINUES = 2, // it follows other text directly, so nothing is put in front of it
};

// Fills *out, which must be zeroed or used before.
bool pretokenizer_apply(const struct pretokenizer *pretokenizer, struct bytes text, int where, struct pieces *out,
                        struct error *err);

#endif
