// SPDX-License-Identifier: Apache-2.0
// server/worker.h: the engine thread: it takes jobs that are read, runs scheduler steps, and sends their output to the
// writer.
#ifndef SERVER_WORKER_H
#define SERVER_WORKER_H

#include "server/mailbox.h"
#include "server/queue.h"

struct worker {
    struct nibble_scheduler *scheduler; // the worker's own once it has started
    struct mailbox *mailbox;
    struct queue to_run;
    pthread_t thread;
    struct job *jobs; // linked by next_run
};

// jobs_max: how many jobs there may be at once. A job that is pushed to `to_run` comes back through the mailbox, also
// when
// its `cancelled` is set meanwhile: within one step.
bool worker_open(struct worker *worker, struct nibble_scheduler *scheduler, struct mailbox *mailbox, int jobs_max,
                 struct error *err);
void worker_close(struct worker *worker); // every job must be over

#endif
