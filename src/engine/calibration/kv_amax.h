// SPDX-License-Identifier: Apache-2.0
// engine/calibration/kv_amax.h: absolute maxima (amax) of the keys and values that a text leaves in the cache. The
// scales of a quantised cache (k_scale, v_scale) are made of them.
#ifndef ENGINE_CALIBRATION_KV_AMAX_H
#define ENGINE_CALIBRATION_KV_AMAX_H

#include "engine/engine.h"
#include "engine/sequence.h"

// Raises each layer's entry to the largest magnitude among the sequence's cached tokens from `from` on, as far as their
// pages are still held. The cache must be in the host's memory.
void kv_amax(const struct engine *engine, const struct sequence *sequence, int from, float *k, float *v);

#endif
