// SPDX-License-Identifier: Apache-2.0
// server/writer.h: the writer thread: it serialises answers (JSON, server-sent events), so that the loop only moves
// bytes and the worker only computes.
//   (1) jobs are taken in the order in which they were sent; each gets one slice (ANSWER_SLICE_BYTES) at a time
//   (2) with more than a slice unsent, a job waits (stalled) until the client's socket has taken that: its tokens stay
//       tokens, which are smaller than their text and charged for
//   (3) a job is handed to the loop as over when readers and worker have released it and its text is complete, or
//       its client has gone; all of its memory but the log's goes back before that
#ifndef SERVER_WRITER_H
#define SERVER_WRITER_H

#include "server/metrics.h"
#include "server/outbox.h"
#include "server/mailbox.h"

struct writer {
    struct mailbox *mailbox;
    struct outbox *outbox;
    struct metrics *metrics;
    pthread_t thread;
};

bool writer_open(struct writer *writer, struct mailbox *mailbox, struct outbox *outbox, struct metrics *metrics,
                 struct error *err);
void writer_close(struct writer *writer); // every job must be over

// The loop's: the client's socket has taken `bytes` of a job's text.
void writer_sent(struct writer *writer, struct job *job, size_t bytes);

#endif
