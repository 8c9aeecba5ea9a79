// SPDX-License-Identifier: Apache-2.0
// engine/calibration/measure.h: post-training calibration of the KV cache: a model's keys are measured on a text
// (engine/calibration/text_observer.h), so that a plan can choose how to store them. Weights are loaded twice for this,
// but only the first time: the result is kept in a file (engine/calibration/file.h).
//   (1) a way to store keys is measured in all layers at once, whichever of them the plan would store so: plans that
//       mix the same ways differently find what they need
#ifndef ENGINE_CALIBRATION_MEASURE_H
#define ENGINE_CALIBRATION_MEASURE_H

#include "engine/engine.h"

// Does it know what the plan, made without it, leaves open?
bool calibration_suffices(const struct kv_calibration *calibration, const struct plan *wanted);

// Has each layer say what was measured of the way in which the plan stores its keys.
void calibration_apply(struct kv_calibration *calibration, const struct plan *wanted);

// Adds what `wanted`, the plan that asks, made with `options`, misses in *out, and applies it; centres that are there
// stay. ids: the text, of which the first tokens are taken. Either way the result is to be freed.
bool calibrate(struct kv_calibration *out, const struct checkpoint *checkpoint, const struct plan *wanted,
               const struct engine_options *options, const int32_t *ids, size_t count, struct error *err);
void calibration_free(struct kv_calibration *calibration);

#endif
