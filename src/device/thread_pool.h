// SPDX-License-Identifier: Apache-2.0
// device/thread_pool.h: a thread pool that runs steps with a barrier between them. The caller is thread 0.
#ifndef DEVICE_THREAD_POOL_H
#define DEVICE_THREAD_POOL_H

#include <stdint.h>

#include "base/error.h"

enum { THREAD_POOL_MAX = 256 };

struct thread_pool;

struct thread_pool *thread_pool_open(int threads, struct error *err); // NULL when the system gives no threads
void thread_pool_close(struct thread_pool *pool);
int thread_pool_size(const struct thread_pool *pool);

// Runs steps one after the other. In each, run(context, step, chunk, chunks) is called once per chunk, by any thread. A
// step sees all writes of the steps before it.
struct thread_pool_work {
    void (*run)(void *context, int step, int chunk, int chunks);
    void *context;
    int steps;
    bool divisible; // into several chunks per thread; otherwise one chunk per thread
};

// Runs the work and returns when it is done. A preempted thread delays only the chunk it is running: other threads take
// its remaining chunks (work stealing), so divisible work does not stall on a slow or shared core.
void thread_pool_run(struct thread_pool *pool, const struct thread_pool_work *work);

// The number of steps begun so far, modulo 2^32; callable from any thread, for health checks.
uint32_t thread_pool_progress(const struct thread_pool *pool);

#endif
