// SPDX-License-Identifier: Apache-2.0
// server/log_queue.h: asynchronous logging: a bounded queue of lines and the thread that writes them to stderr. Adding
// a line never waits: if the reader of stderr has stopped, lines are dropped and counted, and no other thread notices.
#ifndef SERVER_LOG_QUEUE_H
#define SERVER_LOG_QUEUE_H

#include "base/error.h"
#include "base/strbuf.h"

enum { LOG_QUEUE_BYTES = 1 << 20 };

struct log_queue;

// `dropped` gives the line that says how many were dropped, once there is room again; on the queue's thread.
struct log_queue *log_queue_open(void (*dropped)(void *context, uint64_t count, struct strbuf *line), void *context,
                                 struct error *err);

// Gives what waits a moment to be written. Where that is not enough the thread is left to the process's end, and
// false is returned: the queue stays, and drops every line.
bool log_queue_close(struct log_queue *queue);

void log_queue_add(struct log_queue *queue, struct bytes line);
uint64_t log_queue_dropped(struct log_queue *queue); // since it was opened

void log_queue_write(struct bytes lines); // all of it to stderr, however long that takes

#endif
