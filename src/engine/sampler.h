// SPDX-License-Identifier: Apache-2.0
// engine/sampler.h: from logits to a token. In this order: repetition penalty, temperature, min_p, top_k, top_p, draw.
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sampling {
    double temperature;        // 0: greedy, ties to the lowest id
    double top_p, min_p;       // 1 and 0: off
    int top_k;                 // 0: off
    double repetition_penalty; // 1: off
    uint64_t seed;
    int choice;
};

struct sampler {
    float *logits;             // (vocabulary), a working copy
    struct candidate {
        float probability;
        int32_t id;
    } *candidates;             // (vocabulary)
    uint8_t *seen;             // (vocabulary), all zero between calls
    int vocabulary;
};

void sampler_open(struct sampler *sampler, int vocabulary);
void sampler_close(struct sampler *sampler);

bool sampler_check(const struct sampling *sampling, struct error *err); // values that make sense, else a usage error

// The token after the `count` tokens in ids. The draw depends on the logits and on (seed, choice, count), nothing else.
int32_t sampler_draw(struct sampler *sampler, const float *logits, const struct sampling *sampling, const int32_t *ids,
                     int count);

#endif
