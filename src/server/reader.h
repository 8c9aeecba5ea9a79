// SPDX-License-Identifier: Apache-2.0
// server/reader.h: the thread pool that reads requests: JSON, templates, tokens, grammars (read.h). Two lanes with
// threads of their own: a request of megabytes keeps only those waiting that are as large; a small one that continues a
// stored conversation of megabytes moves there. A lane's requests are taken
// in the order in which they came; of two that are read at the same time, the quicker one is ready first.
#ifndef SERVER_READER_H
#define SERVER_READER_H

#include "server/mailbox.h"
#include "server/queue.h"

enum { READER_SMALL_BYTES = 32 << 10 }; // bodies up to this go through the small lane
enum reader_lane { LANE_SMALL, LANE_LARGE, LANE_COUNT };
enum { READER_THREADS_MAX = 4 };

struct readers {
    struct mailbox *mailbox;
    struct queue *to_run;
    struct lane {
        struct readers *readers;
        struct queue queue;
        atomic_ullong read_count; // jobs that were read so far
    } lanes[LANE_COUNT];
    pthread_t threads[READER_THREADS_MAX];
    int thread_count;
};

// Jobs that need the engine go to `to_run`, all others to the mailbox. jobs_max: how many jobs there may be at once.
bool readers_open(struct readers *readers, struct mailbox *mailbox, struct queue *to_run, int jobs_max,
                  struct error *err);
void readers_close(struct readers *readers); // ends the threads when all that is queued is read

enum reader_lane readers_lane(const struct job *job);
void readers_add(struct readers *readers, struct job *job);

#endif
