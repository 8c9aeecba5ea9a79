// SPDX-License-Identifier: Apache-2.0
#include "server/queue.h"

#include <stdlib.h>

#include "base/memory.h"

void queue_open(struct queue *queue, int capacity)
{
    *queue = (struct queue){ .capacity = capacity };
    queue->items = memory_new((size_t)capacity, sizeof *queue->items);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->filled, NULL);
}

void queue_free(struct queue *queue)
{
    if (!queue->items)
        return;
    pthread_cond_destroy(&queue->filled);
    pthread_mutex_destroy(&queue->lock);
    free(queue->items);
    *queue = (struct queue){ 0 };
}

bool queue_push(struct queue *queue, void *item)
{
    pthread_mutex_lock(&queue->lock);
    bool room = queue->count < queue->capacity;
    if (room) {
        queue->items[(queue->first + queue->count++) % queue->capacity] = item;
        pthread_cond_signal(&queue->filled);
    }
    pthread_mutex_unlock(&queue->lock);
    return room;
}

void *queue_pop(struct queue *queue, bool wait)
{
    void *item = NULL;
    pthread_mutex_lock(&queue->lock);
    while (wait && !queue->count && !queue->closed)
        pthread_cond_wait(&queue->filled, &queue->lock);
    if (queue->count) {
        item = queue->items[queue->first];
        queue->first = (queue->first + 1) % queue->capacity;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
    return item;
}

void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}
