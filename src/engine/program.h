// SPDX-License-Identifier: Apache-2.0
// engine/program.h: every op of the model with its arguments bound: buffers, weights and cache as pointers.
#ifndef ENGINE_PROGRAM_H
#define ENGINE_PROGRAM_H

#include "engine/engine.h"

// Needs model, plan, buffers, pools and the batch's arrays in place.
bool program_bind(struct engine *engine, struct error *err);

#endif
