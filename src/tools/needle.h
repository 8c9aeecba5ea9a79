// SPDX-License-Identifier: Apache-2.0
// tools/needle.h: needle-in-a-haystack recall: whether a cache still finds one sentence in a long text. The sentence
// states a number at some depth of the text, and the end of the text asks for it; the score is the probability of the
// right answer, token by token. This works for small models, too, since no answer is generated.
#ifndef TOOLS_NEEDLE_H
#define TOOLS_NEEDLE_H

#include <jansson.h>

#include "cli/quality.h"

enum { NEEDLE_DEPTHS = 8 };

struct needle_score {
    double mean;                  // over the depths
    double likely[NEEDLE_DEPTHS]; // geometric mean of the answer's tokens; the first depth is the text's beginning
};

// The haystack is the text's first chunk.
bool needle_measure(struct quality_side *side, const struct nibble_tokenizer *tokenizer,
                    const struct quality_text *text, struct needle_score *score, struct error *err);
json_t *needle_json(const struct needle_score *score); // a new reference

#endif
