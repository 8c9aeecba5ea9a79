// SPDX-License-Identifier: Apache-2.0
// engine/observer.h: somebody who looks at a step's values while it runs: at what a text makes of keys and queries, or
// at
// what matrices are multiplied with. It costs nothing where nobody watches. A plan whose ops are to be seen one by one
// keeps them apart (plan_options.apart).
#ifndef ENGINE_OBSERVER_H
#define ENGINE_OBSERVER_H

#include <stdint.h>

#include "base/error.h"

struct engine;

struct engine_watch {
    uint32_t ops;     // after which kinds of ops it looks: bits 1u << OP_...
    uint32_t buffers; // at what: bits 1u << BUFFER_...; as f32 in engine->seen, wherever the op ran
    // Called by the whole team, each caller with its part; the next op starts when all have returned. `op` is its place
    // in model.ops.
    void (*after)(void *context, const struct engine *engine, int op, int part, int parts);
    void *context;
};

// Once buffers and batch are there: where the values will be seen.
void watch_open(struct engine *engine);

// Does it look after this op?
bool watch_wants(const struct engine *engine, int op);

// On CPUs a phase of the program: `arguments` is a struct program_moment.
void watch_run(const void *arguments, int part, int parts);

// On a GPU: waits for what is queued, fetches the values and has the team look at them.
bool watch_on_gpu(const struct engine *engine, int op, struct error *err);

#endif
