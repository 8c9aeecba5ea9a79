// SPDX-License-Identifier: Apache-2.0
// tools/calibration.h: a text that a model is measured on, as tokens.
#ifndef TOOLS_CALIBRATION_H
#define TOOLS_CALIBRATION_H

#include "nibble.h"

// Reads a file, standard input for "-", or the built-in text for NULL; on the heap. -1: there is none.
ptrdiff_t calibration_ids(const struct nibble_checkpoint *checkpoint, const char *path, int32_t **ids,
                          struct error *err);

#endif
