// SPDX-License-Identifier: Apache-2.0
// server/mailbox.h: the way to the writer. Readers and worker post jobs that have output; the writer takes them in the
// order in which they were posted. A job is in the post at most once, so it needs no limit of its own.
#ifndef SERVER_MAILBOX_H
#define SERVER_MAILBOX_H

#include <pthread.h>

#include "server/job.h"
#include "server/metrics.h"

struct post {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct job *first, *last;
    bool closed;
    atomic_ullong taken_count; // jobs that the writer took so far
    // What the worker says of itself after each step.
    struct nibble_scheduler_stats stats;
    struct histogram step_tokens;
};

void post_open(struct post *post);
void post_close(struct post *post); // no thread may use it any more
void post_end(struct post *post);   // nothing more will be posted: wakes the writer, which takes what is there

// The worker's: every choice's draft becomes mail. The readers' and the worker's: over says that they have let go of
// it. post_wake follows, once for any number of jobs.
void post_send(struct post *post, struct job *job, bool over);
void post_wake(struct post *post);
void post_report(struct post *post, const struct nibble_scheduler_stats *stats, int step_tokens);

// The loop's: the client's socket has taken what was written, or the client has gone.
void post_resume(struct post *post, struct job *job);

// The writer's: the next job, its choices' mail moved to their news; waits for one. NULL: none will come.
struct job *post_take(struct post *post);
// The writer lets go of a job. False: it was posted again meanwhile and has to be taken once more.
bool post_finish(struct post *post, struct job *job);

bool post_is_waiting(struct post *post); // there is a job for the writer
void post_read(struct post *post, struct nibble_scheduler_stats *stats, struct histogram *step_tokens);

#endif
