// SPDX-License-Identifier: Apache-2.0
// engine/sampling/sampler.h: the token sampler. It applies in this order: penalties, bias, masks and bans, temperature,
// min_p, top_k, top_p, and the draw. Requests that use other samplers go through the chain (chain.h).
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

    // The chain's; NULL: it was not used yet.
    float *weights;          // (vocabulary)
    struct candidate *saved; // (vocabulary)
    int *longest;            // (vocabulary), all zero between calls
    int *repeats;            // (repeat_capacity)
    int repeat_capacity;
};

struct dry_breakers;

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
    const uint32_t *mask, *allowed; // a bit per token that may come; NULL: all may
    const int32_t *banned;          // these may not, unless nothing else may
    size_t banned_count;
    struct nibble_token_sequences bad_words; // nor may these be completed
    const struct dry_breakers *breakers;     // NULL: none
    double *mirostat_mu;                     // the state of mirostat, which a draw changes; 2 tau at first
};

// Whether a request's samplers are those of the usual sampler alone, which a GPU has, too.
bool sampler_is_usual(const struct nibble_sampling *sampling);

// The next token. It depends on the logits and on (seed, choice, count), and on nothing that was drawn before.
int32_t sampler_draw(struct sampler *sampler, const float *logits, const struct draw *draw);

// ---- for the chain --------------------------------------------------------------------------------------------------

// The probability of a token relative to the most likely one, which has 1. Floats suffice for a draw and cost a third.
float sampler_probability(float logit, float highest, double temperature);

// Keeps the candidates of the highest values (from 0 to 2) that make up `wanted` of the weights; of equals, those that
// come first. weights: NULL: the values. Returns how many there are.
int sampler_keep_mass(struct candidate *candidates, const float *weights, int count, double wanted);

// Uniform in [0, 1), a pure function of the seed, the choice, the position and the stream.
double sampler_uniform(const struct nibble_sampling *sampling, int position, int stream);

#endif
