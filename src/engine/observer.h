// SPDX-License-Identifier: Apache-2.0
// engine/observer.h: forward hooks: an observer looks at a step's values while it runs. It may look at a text's keys
// and queries, at the inputs of matrices, or at the operands and results of each op (engine/trace.h). A step without an
// observer costs nothing extra. A plan whose ops are to be seen one by one does not fuse them (plan_options.apart).
#ifndef ENGINE_OBSERVER_H
#define ENGINE_OBSERVER_H

#include <stdint.h>

#include "base/error.h"

struct cuda_event;
struct engine;

struct engine_watch {
    uint32_t ops;     // after which kinds of ops it looks: bits 1u << OP_...
    uint32_t buffers; // at what: bits 1u << BUFFER_...; as f32 in engine->seen, wherever the op ran
    bool results;     // of these only at those that the op has written
    bool timed;       // engine->watch_clock has the op's time when chunk 0 of `after` is called
    // All threads of the pool call it, each with its chunk; the next op starts when all have returned. `op` is its
    // place in model.ops.
    void (*after)(void *context, const struct engine *engine, int op, int chunk, int chunks);
    bool (*finish)(void *context, struct error *err); // after a step: did the observer succeed? NULL: it cannot fail
    void *context;
};

// Times of ops. On CPUs an op's time is what passed since the step began or part 0 returned from the op before; on a
// GPU it lies between two events, so that launching and reading back do not count.
struct watch_clock {
    int step;     // from 1 on
    double since; // on CPUs
    double seconds;
    struct cuda_event *from, *to; // on a GPU
};

// Once buffers and batch are there: where the values will be seen.
bool watch_open(struct engine *engine, struct error *err);
void watch_close(struct engine *engine);

// A step begins, and has ended.
void watch_begin(const struct engine *engine);
bool watch_finish(const struct engine *engine, struct error *err);

// Does it look after this op?
bool watch_wants(const struct engine *engine, int op);

// On CPUs a step of the program: `arguments` is a struct program_op.
void watch_run(const void *arguments, int chunk, int chunks);

// On a GPU, before an op that is wanted is launched, and after: waits for the queue, downloads the values and runs the
// observer on the thread pool.
bool watch_before_on_gpu(const struct engine *engine, struct error *err);
bool watch_on_gpu(const struct engine *engine, int op, struct error *err);

#endif
