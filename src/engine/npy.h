// SPDX-License-Identifier: Apache-2.0
// engine/npy.h: the NumPy array file format (.npy), version 1.0.
#ifndef ENGINE_NPY_H
#define ENGINE_NPY_H

#include <stddef.h>

#include "base/error.h"

// Writes float32 values in C order; it takes the place of a file that is there.
bool npy_write(const char *path, const float *values, const int *shape, int dimensions, struct error *err);

#endif
