// SPDX-License-Identifier: Apache-2.0
// engine/sampling/logits.h: argmax, top-k, log-sum-exp and a check for finite values, of one row of logits.
#ifndef ENGINE_SAMPLING_LOGITS_H
#define ENGINE_SAMPLING_LOGITS_H

#include <stdbool.h>
#include <stdint.h>

#define LOGITS_NOT_FINITE "the model's logits are not finite after token %d; its weights are damaged"

bool logits_finite(const float *logits, int vocabulary);

int32_t logits_most_likely(const float *logits, int vocabulary); // ties to the lowest id

double logits_logsumexp(const float *logits, int vocabulary); // log of the sum of exponentials

struct candidate {
    float value;
    int32_t id;
};

// The `count` largest with their ids, falling, ties to the lowest id; -inf counts as absent. Returns how many it found.
int logits_top(const float *logits, int vocabulary, struct candidate *top, int count);

// The same of candidates. *top may be the candidates themselves.
int candidates_top(const struct candidate *candidates, int candidate_count, struct candidate *top, int count);

#endif
