// SPDX-License-Identifier: Apache-2.0
// engine/calibration/layer_error.h: quantisation error of each layer's keys, values and attention output with a plan's
// cache, measured on a text (engine/calibration/text_observer.h).
#ifndef ENGINE_CALIBRATION_LAYER_ERROR_H
#define ENGINE_CALIBRATION_LAYER_ERROR_H

#include "engine/engine.h"

// As nibble_layer_errors, of a plan made with `options`.
bool layer_errors(const struct checkpoint *checkpoint, const struct plan *plan, const struct engine_options *options,
                  const int32_t *ids, size_t count, struct nibble_layer_error *errors, struct error *err);

#endif
