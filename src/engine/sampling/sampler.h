// SPDX-License-Identifier: Apache-2.0
// engine/sampling/sampler.h: the token sampler. It applies in this order: penalties, bias, masks and bans, temperature,
// min_p, top_k, top_p, and the draw.
#ifndef ENGINE_SAMPLING_SAMPLER_H
#define ENGINE_SAMPLING_SAMPLER_H

#include "base/error.h"
#include "engine/sampling/logits.h"
#include "nibble.h"

struct sampler {
    float *logits;                // (vocabulary), a working copy
    struct candidate *candidates; // (vocabulary)
    uint8_t *seen;                // (vocabulary), all zero between calls
    int vocabulary;
};

void sampler_open(struct sampler *sampler, int vocabulary);
void sampler_close(struct sampler *sampler);

// Values that make sense, else a usage error.
bool sampler_check(const struct nibble_sampling *sampling, struct error *err);

// The input of a draw beside the logits.
struct draw {
    const struct nibble_sampling *sampling;
    const int32_t *ids;      // the text so far
    int prompt_count, count; // the answer follows the prompt
    const struct nibble_bias *bias;
    size_t bias_count;
    const uint32_t *mask;  // a bit per token that may come; NULL: all may
    const int32_t *banned; // these may not, unless nothing else may
    size_t banned_count;   // at most the vocabulary
};

// The next token. It depends on the logits and on (seed, choice, count), and on nothing that was drawn before.
int32_t sampler_draw(struct sampler *sampler, const float *logits, const struct draw *draw);

#endif
