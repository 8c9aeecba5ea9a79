// SPDX-License-Identifier: Apache-2.0
// cli/quality.h: how far the answers of one cache are from those of another. A text is read in chunks, each from an
// empty cache; counted are the predictions of the second half of a chunk, where every token has at least half a
// context before it. What eval, tune and the server's quality gate say of a cache is measured here.
#ifndef CLI_QUALITY_H
#define CLI_QUALITY_H

#include "nibble.h"

// A text as whole chunks of tokens. Where the tokenizer adds BOS, each chunk begins with it.
struct quality_text {
    int32_t *ids; // (chunks, context); to be freed
    int chunks, context;
};

// As many whole chunks as there are, at most `chunks_max` (0: all). `name` is what a sentence calls the text.
bool quality_text_cut(struct quality_text *text, const struct nibble_tokenizer *tokenizer, const char *name,
                      const char *data, size_t len, int context, int chunks_max, struct nibble_error *error);

// An engine that reads chunks.
struct quality_side {
    struct nibble_engine *engine;
    struct nibble_sequence *sequence;
    float *logits; // of a slice of tokens
};

bool quality_side_open(struct quality_side *side, const struct nibble_checkpoint *checkpoint,
                       const struct nibble_options *options, struct nibble_error *error);
void quality_side_close(struct quality_side *side); // nothing, where it was never opened

// What predictions are compared with: an engine that reads along, or, so that many can be compared with it one after
// the other, what it once said.
struct quality_reference {
    struct quality_side side;
    float *kept; // (chunks, context / 2, vocabulary); NULL: the engine reads along
};

// With `keep` the engine is closed again, unless what it says is too much to keep.
bool quality_reference_open(struct quality_reference *reference, const struct nibble_checkpoint *checkpoint,
                            const struct nibble_options *options, const struct quality_text *text, bool keep,
                            struct nibble_error *error);
void quality_reference_close(struct quality_reference *reference);

struct quality_score {
    size_t counted;
    double perplexity;
    double mean, median, p99, max; // of the KL divergence from the reference
    double top1;                   // share of predictions with the reference's most likely token
};

// `reference` may be NULL: then there is a perplexity alone.
bool quality_measure(struct quality_side *side, struct quality_reference *reference, const struct quality_text *text,
                     void (*progress)(void *context, double done), void *progress_context, struct quality_score *score,
                     struct nibble_error *error);

// log of the sum of exponentials
double quality_log_total(const float *logits, int vocabulary);

// What a plan's cache takes: bits of a value with its scales, the mean over layers and sides, and bytes of a token.
struct quality_size {
    double bits, token_bytes;
};
struct quality_size quality_size_of(const struct nibble_plan *plan);

// A cache that stores as is: what others are compared with.
struct nibble_options quality_plain(const struct nibble_options *options, const char *kv_cache_dtype);

#endif
