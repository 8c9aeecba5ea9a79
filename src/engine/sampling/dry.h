// SPDX-License-Identifier: Apache-2.0
// engine/sampling/dry.h: DRY ("don't repeat yourself"), a penalty on tokens that would continue a repetition of an
// earlier passage: multiplier * base ^ (length of what is repeated - allowed length). Sequences of tokens that are
// breakers end a passage. Definition of p-e-w (text-generation-webui, pull request 5677), as llama.cpp has it.
#ifndef ENGINE_SAMPLING_DRY_H
#define ENGINE_SAMPLING_DRY_H

#include "engine/sampling/sampler.h"

// The breakers of a request, sorted so that those that begin with a token are found at once.
struct dry_breakers {
    int32_t *ids; // a copy
    struct dry_breaker {
        const int32_t *ids;
        int count;
    } *sorted;
    int count;
    uint32_t *begins; // a bit per token that one of them begins with
};

void dry_breakers_open(struct dry_breakers *breakers, struct nibble_token_sequences sequences, int vocabulary);
void dry_breakers_free(struct dry_breakers *breakers);

// Takes the penalties off sampler->logits. Linear in the tokens that are looked at.
void dry_penalise(struct sampler *sampler, const struct draw *draw);

#endif
