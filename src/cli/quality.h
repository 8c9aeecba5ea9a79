// SPDX-License-Identifier: Apache-2.0
// cli/quality.h: perplexity, and the KL divergence between two KV cache formats, for eval, tune and the server's
// quality gate. A text is read in chunks, each from an empty cache; counted are the predictions of the second half of a
// chunk, where every token has at least half a context before it.
#ifndef CLI_QUALITY_H
#define CLI_QUALITY_H

#include <jansson.h>

#include "nibble.h"

// A text as whole chunks of tokens. Where the tokenizer adds BOS, each chunk begins with it.
struct quality_text {
    int32_t *ids; // (chunks, context); to be freed
    int chunks, context;
};

// As many whole chunks as there are, at most `chunks_max` (0: all). `name` is what a sentence calls the text.
bool quality_text_cut(struct quality_text *text, const struct nibble_tokenizer *tokenizer, const char *name,
                      const char *data, size_t len, int context, int chunks_max, struct error *err);

// The same of a file, or of standard input for "-".
bool quality_text_read(struct quality_text *text, const struct nibble_tokenizer *tokenizer, const char *path,
                       int context, int chunks_max, struct error *err);

// An engine that reads chunks.
struct quality_side {
    struct nibble_engine *engine;
    struct nibble_sequence *sequence;
    float *logits; // of a slice of tokens
};

bool quality_side_open(struct quality_side *side, const struct nibble_checkpoint *checkpoint,
                       const struct nibble_options *options, struct error *err);
void quality_side_close(struct quality_side *side); // nothing, where it was never opened

// The reference of a comparison: an engine that reads along, or its logits, kept so that many formats can be compared
// with them one after the other.
struct quality_reference {
    struct quality_side side;
    float *kept; // (chunks, context / 2, vocabulary); NULL: the engine reads along
};

// With `keep` the engine is closed again, unless its logits are too many to keep.
bool quality_reference_open(struct quality_reference *reference, const struct nibble_checkpoint *checkpoint,
                            const struct nibble_options *options, const struct quality_text *text, bool keep,
                            struct error *err);
void quality_reference_close(struct quality_reference *reference);

struct quality_score {
    size_t counted;
    double perplexity;
    double mean, median, p99, max; // of the KL divergence from the reference
    double top1;                   // share of predictions with the reference's most likely token
};

json_t *quality_json_kld(const struct quality_score *score); // mean, median, p99 and max; a new reference

// `reference` may be NULL: then there is a perplexity alone.
bool quality_measure(struct quality_side *side, struct quality_reference *reference, const struct quality_text *text,
                     void (*progress)(void *context, double done), void *progress_context, struct quality_score *score,
                     struct error *err);

// log of the sum of exponentials
double quality_log_total(const float *logits, int vocabulary);

// The size of a plan's cache: bits of a value with its scales, the mean over layers and sides, and bytes of a token.
struct quality_size {
    double bits, token_bytes;
};
struct quality_size quality_size_of(const struct nibble_plan *plan);

// A cache that stores as is: what others are compared with.
struct nibble_options quality_plain(const struct nibble_options *options, const char *kv_cache_dtype);

#endif
