// SPDX-License-Identifier: Apache-2.0
// device/thread_pool.h: a resident team of threads that works through phases in lockstep. The caller is member 0.
#ifndef DEVICE_THREAD_POOL_H
#define DEVICE_THREAD_POOL_H

#include <stdint.h>

#include "base/error.h"

enum { TEAM_THREADS_MAX = 256 };

struct thread_pool;

struct thread_pool *thread_pool_open(int threads, struct error *err); // NULL when the system gives no threads
void thread_pool_close(struct thread_pool *team);
int thread_pool_size(const struct thread_pool *team);

// Phases, one after the other: run(context, phase, part, parts) is called once for every part of a phase, by whichever
// member, and what the parts of a phase wrote is seen by all parts of the next.
struct thread_pool_work {
    void (*run)(void *context, int phase, int part, int parts);
    void *context;
    int phases;
    bool divisible; // into several parts for each member; else there is exactly one for each
};

// Does the work and returns when all of it is done. A member that the system keeps from running holds up nothing but
// the part it is in the middle of: the others take the rest. So divisible work does not stall on a slow or shared core.
void thread_pool_run(struct thread_pool *team, const struct thread_pool_work *work);

// How many phases were begun so far, modulo 2^32. Any thread may ask: it moves on while the team gets ahead.
uint32_t thread_pool_progress(const struct thread_pool *team);

#endif
