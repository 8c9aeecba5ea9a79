// SPDX-License-Identifier: Apache-2.0
// cli/needle.h: whether a cache still finds one sentence in a long text. A number is told at some depth of the text and
// asked for at its end; the score is how likely the model holds the right answer, token by token. Small models can be
// measured so, too: nothing has to be said in words.
#ifndef CLI_NEEDLE_H
#define CLI_NEEDLE_H

#include <jansson.h>

#include "cli/quality.h"

enum { NEEDLE_DEPTHS = 8 };

struct needle_score {
    double mean;                  // over the depths
    double likely[NEEDLE_DEPTHS]; // geometric mean of the answer's tokens; the first depth is the text's beginning
};

// The haystack is the text's first chunk.
bool needle_measure(struct quality_side *side, const struct nibble_tokenizer *tokenizer,
                    const struct quality_text *text, struct needle_score *score, struct nibble_error *error);
json_t *needle_json(const struct needle_score *score); // a new reference

#endif
