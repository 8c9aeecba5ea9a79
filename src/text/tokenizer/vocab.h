// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/vocab.h: a vocabulary: each id's piece and flags. Pieces are copies, alive as long as the
// vocabulary.
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/map.h"
#include "base/memory.h"

enum { VOCAB_COUNT_MAX = 1 << 22 };

enum vocab_flags {
    VOCAB_SPECIAL = 1,  // control tokens: only found in a text when asked for, left out of a text when asked for
    VOCAB_ADDED = 2,    // found in a text before anything else happens to it
    VOCAB_VERBATIM = 4, // stands for the very bytes of its piece, whatever the decoder does to others
    VOCAB_BYTE = 8,     // stands for one byte, named in hexadecimal
    VOCAB_END = 16,     // generation stops here
    VOCAB_OUTSIDE = 32, // no merge makes it: only ever found as an added token
    VOCAB_RESPELT = 64, // is decoded as the normalizer writes it
};

struct vocab {
    size_t count;
    struct bytes *pieces; // by id; .data is NULL for an id without a token
    uint8_t *flags;       // by id
    struct map ids;       // piece -> id
    struct arena arena;
};

void vocab_open(struct vocab *vocab, size_t count);
void vocab_close(struct vocab *vocab);

// Gives an id its piece. Fails when the id or the piece is taken.
bool vocab_set(struct vocab *vocab, int32_t id, struct bytes piece, struct error *err);

int32_t vocab_find(const struct vocab *vocab, struct bytes piece);        // -1: none
int32_t vocab_find_inside(const struct vocab *vocab, struct bytes piece); // -1: none, or VOCAB_OUTSIDE

#endif
