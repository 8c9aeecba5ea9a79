// SPDX-License-Identifier: Apache-2.0
// server/mailbox.h: the writer's mailbox. Readers and worker send jobs that have output; the writer takes them in the
// order in which they were sent. A job is in the mailbox at most once, so the mailbox needs no limit of its own.
#ifndef SERVER_MAILBOX_H
#define SERVER_MAILBOX_H

#include <pthread.h>

#include "server/job.h"
#include "server/metrics.h"

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct job_queue jobs;
    bool closed;
    atomic_ullong taken_count; // jobs that the writer took so far
    // Figures of the worker, after each step.
    struct nibble_scheduler_stats stats;
    struct histogram step_tokens;
};

void mailbox_open(struct mailbox *mailbox);
void mailbox_close(struct mailbox *mailbox); // no thread may use it any more
void mailbox_end(struct mailbox *mailbox);   // nothing more will be sent: wakes the writer, which takes the rest

// The worker's: every choice's per-step output moves to its output queue. The readers' and the worker's: `over` means
// that they have released the job. mailbox_wake follows, once for any number of jobs.
void mailbox_send(struct mailbox *mailbox, struct job *job, bool over);
void mailbox_wake(struct mailbox *mailbox);
void mailbox_report(struct mailbox *mailbox, const struct nibble_scheduler_stats *stats, int step_tokens);

// The loop's: the client's socket has taken what was written, or the client has gone.
void mailbox_resume(struct mailbox *mailbox, struct job *job);

// The writer's: the next job, with the output queues of its choices delivered; waits for one. NULL: none will come.
struct job *mailbox_take(struct mailbox *mailbox);
// The writer releases a job. False: it was sent again meanwhile and has to be taken once more.
bool mailbox_finish(struct mailbox *mailbox, struct job *job);

bool mailbox_is_waiting(struct mailbox *mailbox); // there is a job for the writer
void mailbox_read(struct mailbox *mailbox, struct nibble_scheduler_stats *stats, struct histogram *step_tokens);

#endif
