// SPDX-License-Identifier: Apache-2.0
// server/outbox.h: the queue from the writer to the event loop: text that is ready to be sent, by job. The loop is
// woken once however many jobs there are.
#ifndef SERVER_OUTBOX_H
#define SERVER_OUTBOX_H

#include <pthread.h>

#include "server/job.h"

struct outbox {
    pthread_mutex_t lock;
    struct job_queue jobs;
    int wake_fd; // an eventfd: readable when there is something to take
};

bool outbox_open(struct outbox *outbox, struct error *err);
void outbox_close(struct outbox *outbox);

// The writer's: what stands in job->text moves to the loop. After over the job is the loop's.
void outbox_put(struct outbox *outbox, struct job *job, bool over);

// The loop's: the next job with its text; job->over says whether it is the last of it. NULL: there is none.
// outbox_clear_wake resets the wake-up, before the first.
void outbox_clear_wake(struct outbox *outbox);
struct job *outbox_take(struct outbox *outbox, struct strbuf *text);

#endif
