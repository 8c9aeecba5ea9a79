// SPDX-License-Identifier: Apache-2.0
// server/worker.h: the two threads behind the loop. The reader turns bodies into prompts; the worker owns the engine:
// it takes jobs, runs steps, and posts what came of them.
#ifndef SERVER_WORKER_H
#define SERVER_WORKER_H

#include "server/post.h"
#include "server/queue.h"

struct worker {
    struct nibble_scheduler *scheduler; // the worker's own once it has started
    struct post *post;
    struct queue to_read, to_run;
    pthread_t reader, runner;
    struct job *jobs;                   // the runner's, linked by next_run
};

// jobs_max: how many jobs there may be at once; no queue needs more room.
bool worker_open(struct worker *worker, struct nibble_scheduler *scheduler, struct post *post, int jobs_max,
                 struct error *err);
void worker_close(struct worker *worker); // ends both threads; every job must be over

// The job comes back through the post, also when its `cancelled` is set meanwhile: within one step.
void worker_add(struct worker *worker, struct job *job);

// Seconds of the clock that mail and usage go by.
double worker_now(void);

#endif
