// SPDX-License-Identifier: Apache-2.0
// engine/calibration/calibration.h: lookup of a plan's KV cache calibration. It is read from the file of earlier
// calibrations; statistics that the file lacks are measured now and added to it.
#ifndef ENGINE_CALIBRATION_CALIBRATION_H
#define ENGINE_CALIBRATION_CALIBRATION_H

#include "engine/calibration/measure.h"

struct calibration_source {
    struct bytes text;
    bool given; // named by the user: it is used, or that is an error
    // Its tokens, on the heap: how many, or -1. NULL: nothing is measured, and what no file has is left open.
    ptrdiff_t (*tokens)(void *context, struct bytes text, int32_t **ids, struct error *err);
    void *context;
};

// For a plan that wants it, made with options->plan. Where `auto` leaves the choice, trouble is a warning in *out, and
// nothing else is there then; where it was asked for, it is an error. A file that cannot be used or written is a
// warning, too.
bool calibration_find(struct kv_calibration *out, const struct checkpoint *checkpoint, const struct plan *wanted,
                      const struct engine_options *options, const struct calibration_source *source, struct error *err);

#endif
