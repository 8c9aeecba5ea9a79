// SPDX-License-Identifier: Apache-2.0
// engine/schedule/generate.h: the generation loop of continuous batching, with overlapped (async) scheduling. The
// engine computes the chunks that the scheduler decides, the thread pool samples tokens, and listeners get them. While
// requests only continue, a step allocates nothing.
//
// Overlapped scheduling: where the engine draws tokens itself, step n + 1 is queued before the tokens of step n are
// read back, so that the device does not idle between them. Every request is assumed to continue, with a placeholder
// token that stands for the one being drawn:
//   (1) outputs do not depend on it: a row of a request that has ended by then is discarded
//   (2) no request is preempted by it, and none waits for pages that a foreseeable end will free
//   (3) while any request, be it a waiting one, needs more than token ids, no step overlaps
//
// The thread pool computes the masks of listeners (constrained decoding). Masks may be expensive, and all requests wait
// for a step: no further mask is begun when the masks before have taken GENERATE_MASK_WORK_MAX. A request without its
// mask keeps its row of logits, sits out and draws in a later step, in which such late masks come first. It draws the
// same token.
#ifndef ENGINE_SCHEDULE_GENERATE_H
#define ENGINE_SCHEDULE_GENERATE_H

#include "engine/engine.h"
#include "engine/sampling/params.h"
#include "engine/schedule/scheduler.h"

enum { GENERATE_TOP_MAX = 128 };           // likeliest tokens that can come with each
enum { STEPS_IN_FLIGHT_MAX = 2 };          // step n + 1 is queued before the tokens of step n are read back
enum { GENERATE_MASK_WORK_MAX = 2 << 20 }; // of the masks in one step, as nibble_listener.restrict_tokens counts it

struct generator {
    struct engine *engine; // borrowed
    struct scheduler scheduler;
    double (*clock)(void *context);
    void *clock_context;
    struct sampler *samplers; // one per thread of the pool
    struct in_flight {        // a step that was started
        struct row *rows;     // (outputs)
        int row_count;
        int tokens;    // that it reads; 0: nothing but rows that were held
        int step;      // the engine's number; 0: it could not be started, as `err` says
        bool computed; // the scheduler knows that its pages are written
        struct error err;
    } in_flight_steps[STEPS_IN_FLIGHT_MAX];
    struct in_flight *overlapped; // the step that was queued before the results of the last one were read, or NULL
    uint32_t *masks;              // (outputs, mask_words)
    int mask_words;
    struct candidate *tops; // (outputs, GENERATE_TOP_MAX)
};

void generator_open(struct generator *generator, struct engine *engine, const struct nibble_scheduler_options *options);
void generator_close(struct generator *generator); // cancels what is left

// As the functions of nibble.h.
uint64_t generator_add(struct generator *generator, const struct nibble_request *request_params, struct error *err);
void generator_cancel(struct generator *generator, uint64_t name);
bool generator_step(struct generator *generator, struct nibble_step *step);
void generator_stats(const struct generator *generator, struct nibble_scheduler_stats *out);
void generator_forget(struct generator *generator);

#endif
