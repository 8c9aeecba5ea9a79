// SPDX-License-Identifier: Apache-2.0
// server/queue.h: a bounded FIFO queue of pointers between threads.
#ifndef SERVER_QUEUE_H
#define SERVER_QUEUE_H

#include <pthread.h>
#include <stdbool.h>

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    void **items; // (capacity), a ring
    int first, count, capacity;
    bool closed;
};

void queue_open(struct queue *queue, int capacity);
void queue_free(struct queue *queue);

bool queue_push(struct queue *queue, void *item); // false: it is full
// The first item, waiting for one if `wait`. NULL: none there, or with `wait`, none there and none will come.
void *queue_pop(struct queue *queue, bool wait);
void queue_close(struct queue *queue); // nothing more will be pushed: wakes who waits

#endif
