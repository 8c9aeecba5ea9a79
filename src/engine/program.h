// SPDX-License-Identifier: Apache-2.0
// engine/program.h: the program: a flat schedule of the model's ops with their arguments bound to addresses of buffers,
// weights and cache.
#ifndef ENGINE_PROGRAM_H
#define ENGINE_PROGRAM_H

#include "engine/engine.h"

// Needs model, plan, buffers, pools and the batch's arrays in place.
bool program_bind(struct engine *engine, struct error *err);

#endif
