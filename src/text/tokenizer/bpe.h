// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/bpe.h: byte pair encoding (GPT-2, SentencePiece). Adjacent symbols of a piece are merged, cheapest
// merge first, leftmost on a tie. The cost of a merge is its rank in the list of merges, or minus the score of the
// token that it makes (SentencePiece).
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "base/bytes.h"
#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer/vocab.h"

enum { BPE_MERGES_MAX = 1 << 23 }; // a rank is exact as a float

struct bpe {
    const struct vocab *vocab;
    const float *scores;      // by id; NULL: ranks decide
    struct bpe_merge *merges; // open addressing by (left, right), a power of two of them
    size_t merge_count, merge_capacity;
    int32_t bytes[256];  // token of a byte, for characters without a token; -1: none
    int32_t unknown;     // token for characters without any other; -1: they are left out
    bool fuse_unknown;   // one for a run of them
    bool whole_first;    // a piece that is a token is taken whole, without merging (ignore_merges)
    bool whole_newlines; // the same, for pieces of nothing but newlines
    bool glued[256];     // last bytes of words that some token joins with the next word's separator (bpe_finish)
};

void bpe_open(struct bpe *bpe, const struct vocab *vocab); // without merges, byte tokens or an unknown token
void bpe_close(struct bpe *bpe);

void bpe_reserve(struct bpe *bpe, size_t merges);
// The next merge in the order of ranks; both pieces and what they make must be in the vocabulary.
bool bpe_add_merge(struct bpe *bpe, struct bytes left, struct bytes right, struct error *err);
void bpe_finish(struct bpe *bpe); // once, when everything is set

// Working memory of bpe_encode, reused from piece to piece by one thread. A zeroed struct is empty.
struct bpe_work {
    struct bpe_symbol *symbols;
    struct bpe_candidate *queue;
    size_t symbol_capacity, queue_count, queue_capacity;
    const atomic_bool *cancelled; // set by another thread: the piece is left half merged. NULL: never
};

void bpe_work_free(struct bpe_work *work);
bool bpe_is_cancelled(const struct bpe_work *work);

// Appends the tokens of one piece, valid UTF-8, to *out.
void bpe_encode(const struct bpe *bpe, struct bytes piece, struct bpe_work *work, struct tokens *out);

#endif
