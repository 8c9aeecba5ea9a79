// SPDX-License-Identifier: Apache-2.0
// device/team.h: a resident team of threads that walks a list of work in lockstep. The caller is member 0.
#ifndef DEVICE_TEAM_H
#define DEVICE_TEAM_H

#include "base/error.h"

enum { TEAM_THREADS_MAX = 256 };

struct team;

struct team *team_open(int threads, struct error *err); // NULL when the system gives no threads
void team_close(struct team *team);
int team_size(const struct team *team);

// Runs work(context, part, parts) on every member and returns when all are done.
void team_run(struct team *team, void (*work)(void *context, int part, int parts), void *context);

// Inside work: waits until every member is here. What was written before it is seen by all after it.
void team_barrier(struct team *team);

#endif
