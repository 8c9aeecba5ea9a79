// SPDX-License-Identifier: Apache-2.0
// engine/sampling/defaults.h: the sampling parameters of requests that say nothing else (generation_config).
#ifndef ENGINE_SAMPLING_DEFAULTS_H
#define ENGINE_SAMPLING_DEFAULTS_H

#include "format/checkpoint.h"

// As nibble_sampling_defaults.
bool sampling_defaults(const struct checkpoint *checkpoint, const struct nibble_defaults_options *options,
                       struct nibble_defaults *out, struct error *err);

// As nibble_sampling_print.
void sampling_print(const struct nibble_sampling *sampling, struct nibble_text *out);

#endif
