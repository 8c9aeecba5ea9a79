// SPDX-License-Identifier: Apache-2.0
// server/generation.h: the engine listener of a choice (nibble_listener): it detokenises, searches for stop strings and
// applies the grammar's token masks. It runs inside the scheduler's step, on the worker's thread; masks are computed by
// the engine's threads, side by side.
#ifndef SERVER_GENERATION_H
#define SERVER_GENERATION_H

#include "server/job.h"

// Gives the choice to the scheduler. `after`: the request whose prompt it shares, or 0.
bool generation_start(struct choice *choice, uint64_t after, struct error *err);
// Prepares the choice, and its listener.
void generation_listen(struct choice *choice, struct nibble_listener *listener);
// Starts those choices of a job again whose answers did not meet their schema; or ends them, where the job has failed
// or is cancelled.
void generation_retry(struct job *job);
void generation_drop(struct job *job);

#endif
