// SPDX-License-Identifier: Apache-2.0
// engine/sampling/adjust.h: logits processors: penalties of repetition, bias, masks, and tokens that may not come.
#ifndef ENGINE_SAMPLING_ADJUST_H
#define ENGINE_SAMPLING_ADJUST_H

#include "engine/sampling/sampler.h"

// A logit as a float that is not infinite: -inf is kept for tokens that may not come.
float adjust_clamp(double logit);

void adjust_penalties(struct sampler *sampler, const struct draw *draw); // repetition, presence, frequency
void adjust_limits(struct sampler *sampler, const struct draw *draw);    // bias, masks, bans, bad words

#endif
