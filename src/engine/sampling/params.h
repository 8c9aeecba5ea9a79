// SPDX-License-Identifier: Apache-2.0
// engine/sampling/params.h: the sampling parameters of a request, as copies: the samplers' values, bias, the tokens
// that may come and those that may not, and the state of mirostat.
#ifndef ENGINE_SAMPLING_PARAMS_H
#define ENGINE_SAMPLING_PARAMS_H

#include "engine/sampling/dry.h"

struct sampling_params {
    struct nibble_sampling sampling;
    struct nibble_bias *bias;
    size_t bias_count;
    uint32_t *allowed; // a bit per token; NULL: all
    int32_t *bad_words;
    size_t bad_word_ids;
    struct dry_breakers breakers;
    double mirostat_mu;
};

bool sampling_params_check(const struct nibble_request *request, int vocabulary, struct error *err);
void sampling_params_open(struct sampling_params *params, const struct nibble_request *request, int vocabulary);
void sampling_params_free(struct sampling_params *params);

// True when a token is drawn from unchanged logits by the usual sampler.
bool sampling_params_are_plain(const struct sampling_params *params);

// The part of a draw that they are.
struct draw sampling_params_draw(struct sampling_params *params);

#endif
