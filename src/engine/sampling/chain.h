// SPDX-License-Identifier: Apache-2.0
// engine/sampling/chain.h: the sampler chain: samplers in any order, each of which changes or shortens the list of
// candidates. It is for requests that use more than penalties, temperature, min_p, top_k and top_p in the usual order.
#ifndef ENGINE_SAMPLING_CHAIN_H
#define ENGINE_SAMPLING_CHAIN_H

#include "engine/sampling/sampler.h"

bool chain_check(const struct nibble_sampling *sampling, struct error *err);

// The next token; sampler->logits are the model's.
int32_t chain_draw(struct sampler *sampler, const struct draw *draw);

#endif
