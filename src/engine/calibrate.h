// SPDX-License-Identifier: Apache-2.0
// engine/calibrate.h: a model's keys measured on a text, for a plan that wants to know how to store them. An engine of
// its own reads the text in one step, with a cache of 16 bits, on the plan's device; layer by layer, what attention is
// about to read is looked at and measured on the CPU. So weights are loaded twice, and once only: the result is kept in
// a file (engine/calibration_file.h).
#ifndef ENGINE_CALIBRATE_H
#define ENGINE_CALIBRATE_H

#include "engine/engine.h"

enum { CALIBRATE_TOKENS = 1024, CALIBRATE_TOKENS_MIN = 16 };

// What is measured of a layer: whether it has keys that are nothing but that, how they are stored, and how many tokens'
// at a sequence's beginning stay in 16 bits.
bool calibrate_measures(const struct plan *wanted, int layer);
const struct kv_side *calibrate_keys(const struct plan *wanted, int layer);
int calibrate_kept(const struct plan *wanted, int layer);

// `wanted` is the plan that asks, made with `options`; ids: the text, of which the first tokens are taken. Either way
// the result is to be freed.
bool calibrate(struct kv_calibration *out, const struct checkpoint *checkpoint, const struct plan *wanted,
               const struct engine_options *options, const int32_t *ids, size_t count, struct error *err);
void calibration_free(struct kv_calibration *calibration);

#endif
