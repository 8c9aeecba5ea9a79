// SPDX-License-Identifier: Apache-2.0
#include "server/log_queue.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

enum { CLOSE_SECONDS = 1 };

struct log_queue {
    pthread_t thread;
    void (*dropped_line)(void *context, uint64_t count, struct strbuf *line);
    void *context;

    pthread_mutex_t lock; // of all below
    pthread_cond_t filled, finished;
    struct strbuf lines; // not taken by the thread yet
    uint64_t dropped, reported;
    bool closing, ended;
    bool abandoned; // its owner has gone, and so has `context`
};

void log_queue_write(struct bytes lines)
{
    while (lines.len) {
        ssize_t wrote = write(STDERR_FILENO, lines.data, lines.len);
        if (wrote < 0 && errno != EINTR)
            return; // stderr is closed: the line is lost
        size_t count = wrote > 0 ? (size_t)wrote : 0;
        lines = (struct bytes){ lines.data + count, lines.len - count };
    }
}

// Called with the lock, which is released while it writes.
static void write_batch(struct log_queue *queue)
{
    struct strbuf batch = queue->lines;
    queue->lines = (struct strbuf){ 0 };
    if (queue->dropped > queue->reported && !queue->abandoned) // they would have stood behind these
        queue->dropped_line(queue->context, queue->dropped - queue->reported, &batch);
    queue->reported = queue->dropped;
    pthread_mutex_unlock(&queue->lock);
    log_queue_write(strbuf_bytes(&batch));
    strbuf_free(&batch);
    pthread_mutex_lock(&queue->lock);
}

static void *write_lines(void *context)
{
    struct log_queue *queue = context;
    pthread_mutex_lock(&queue->lock);
    while (!queue->abandoned && (queue->lines.len || !queue->closing)) {
        if (queue->lines.len)
            write_batch(queue);
        else
            pthread_cond_wait(&queue->filled, &queue->lock);
    }
    queue->ended = true;
    pthread_cond_signal(&queue->finished);
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

// Blocks all signals in the thread: the loop's thread handles them.
static int start_thread(struct log_queue *queue)
{
    sigset_t all, usual;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &usual);
    int failure = pthread_create(&queue->thread, NULL, write_lines, queue);
    pthread_sigmask(SIG_SETMASK, &usual, NULL);
    return failure;
}

static void queue_free(struct log_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->filled);
    pthread_cond_destroy(&queue->finished);
    strbuf_free(&queue->lines);
    free(queue);
}

struct log_queue *log_queue_open(void (*dropped)(void *context, uint64_t count, struct strbuf *line), void *context,
                                 struct error *err)
{
    struct log_queue *queue = memory_new(1, sizeof *queue);
    pthread_condattr_t monotonic;
    queue->dropped_line = dropped;
    queue->context = context;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->filled, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failure = start_thread(queue);
    if (!failure)
        return queue;
    queue_free(queue);
    fail(err, "the system gives no more threads (%s)", strerror(failure));
    return NULL;
}

bool log_queue_close(struct log_queue *queue)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += CLOSE_SECONDS;
    pthread_mutex_lock(&queue->lock);
    queue->closing = true;
    pthread_cond_signal(&queue->filled);
    int waited = 0;
    while (!queue->ended && waited == 0)
        waited = pthread_cond_timedwait(&queue->finished, &queue->lock, &end);
    bool ended = queue->ended;
    queue->abandoned = !ended;
    pthread_mutex_unlock(&queue->lock);
    if (!ended) {
        pthread_detach(queue->thread);
        return false;
    }
    pthread_join(queue->thread, NULL);
    queue_free(queue);
    return true;
}

void log_queue_add(struct log_queue *queue, struct bytes line)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->closing || line.len > LOG_QUEUE_BYTES - queue->lines.len)
        queue->dropped++;
    else
        strbuf_add(&queue->lines, line.data, line.len);
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

uint64_t log_queue_dropped(struct log_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t dropped = queue->dropped;
    pthread_mutex_unlock(&queue->lock);
    return dropped;
}
