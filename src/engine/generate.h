// SPDX-License-Identifier: Apache-2.0
// engine/generate.h: many texts being continued at once: what the scheduler decides is read by the engine, tokens are
// drawn by the team, and listeners hear of them. While requests only continue, a step allocates nothing.
#ifndef ENGINE_GENERATE_H
#define ENGINE_GENERATE_H

#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

enum { GENERATE_TOP_MAX = 128 }; // likeliest tokens that can come with each

struct generator {
    struct engine *engine;     // borrowed
    struct scheduler scheduler;
    double (*clock)(void *context);
    void *clock_context;
    struct sampler *samplers;  // one per member of the team
    struct row *rows;          // (outputs), of the step that is under way
    int row_count;
    uint32_t *masks;           // (outputs, mask_words)
    int mask_words;
    struct candidate *tops;    // (outputs, GENERATE_TOP_MAX)
};

void generator_open(struct generator *generator, struct engine *engine, const struct nibble_scheduler_options *options);
void generator_close(struct generator *generator); // cancels what is left

// As the functions of nibble.h.
uint64_t generator_add(struct generator *generator, const struct nibble_request *wish, struct error *err);
void generator_cancel(struct generator *generator, uint64_t name);
bool generator_step(struct generator *generator, struct nibble_step *step);
void generator_stats(const struct generator *generator, struct nibble_scheduler_stats *out);
void generator_forget(struct generator *generator);

#endif
