// SPDX-License-Identifier: Apache-2.0
// engine/schedule/generate.h: the generation loop of continuous batching, with overlapped (async) scheduling. The
// engine computes the chunks that the scheduler decides, the thread pool samples tokens, and listeners get them. While
// requests only continue, a step allocates nothing.
//
// Where the engine draws tokens itself, the next step is started before the results of this one are there, so that the
// device has no rest between them: everyone is assumed to go on, with an id that stands for the token which is still
// being drawn. It is as if the step had been decided a little early:
//   (1) what a request hears does not depend on it: a row of a request that has ended by then is not looked at
//   (2) nobody is preempted by it, and nobody waits whom an end that could be foreseen makes room for
//   (3) a request that wants more than tokens, be it one that waits, keeps all steps from being started early
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
enum { STEPS_IN_FLIGHT_MAX = 2 };          // steps under way
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
        bool computed; // the scheduler has been told
        struct error err;
    } in_flight_steps[STEPS_IN_FLIGHT_MAX];
    struct in_flight *early; // the one that was started before the last one's results were there, or NULL
    uint32_t *masks;         // (outputs, mask_words)
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
