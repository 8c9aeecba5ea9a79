// SPDX-License-Identifier: Apache-2.0
// server/post.h: the way back to the loop. Reader and worker post jobs that have news; the loop, woken once however
// many there are, collects them. A job is in the post at most once, so it needs no limit of its own.
#ifndef SERVER_POST_H
#define SERVER_POST_H

#include <pthread.h>

#include "server/job.h"
#include "server/metrics.h"

struct post {
    pthread_mutex_t lock;
    struct job *first, *last;
    int wake_fd;                          // an eventfd: readable when there is something to collect
    // What the worker says of itself after each step.
    struct nibble_scheduler_stats stats;
    struct histogram step_tokens;
};

bool post_open(struct post *post, struct error *err);
void post_close(struct post *post);

// The worker's: every choice's draft becomes mail. The reader's and the worker's: over says that they have let go of
// it.
void post_send(struct post *post, struct job *job, bool over);
void post_wake(struct post *post);
void post_report(struct post *post, const struct nibble_scheduler_stats *stats, int step_tokens);

// The loop's: the next job that was posted, its choices' mail moved to their news; NULL: there is none. The wake-up is
// taken back by post_hear, before the first.
void post_hear(struct post *post);
struct job *post_take(struct post *post);
void post_read(struct post *post, struct nibble_scheduler_stats *stats, struct histogram *step_tokens);

#endif
