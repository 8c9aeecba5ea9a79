// SPDX-License-Identifier: Apache-2.0
// server/follow.h: how a choice follows its request through the engine: tokens become text, text is searched for stop
// strings, a grammar says which token may come. All of it runs inside the scheduler's step, on the worker's thread,
// but for masks, which the engine's threads compute side by side.
#ifndef SERVER_FOLLOW_H
#define SERVER_FOLLOW_H

#include "server/job.h"

// Gives the choice to the scheduler. `after`: the request whose prompt it shares, or 0.
bool follow_start(struct choice *choice, uint64_t after, struct nibble_error *error);
// Starts those choices of a job again whose answers did not meet their schema; or ends them, where the job has failed
// or is cancelled.
void follow_again(struct job *job);
void follow_drop(struct job *job);

#endif
