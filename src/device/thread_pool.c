// SPDX-License-Identifier: Apache-2.0
// device/thread_pool.c: a work-stealing thread pool. Each thread runs its own chunks first, which are contiguous, and
// then steals from the others. Threads wait by spinning for a few microseconds, since the next step usually follows at
// once, and then sleep on a futex, so that an idle engine uses no CPU and more threads than cores still make progress.
//   (1) `generation` counts all steps, and the idle time between two works; it is incremented when no chunk is left
//   (2) a thread takes a chunk only if it is marked with the generation that the thread has seen; the generation, and
//       the description of the work, stay while any of its chunks is unfinished
//   (3) the thread that finishes the last chunk marks all chunks for the next generation before it publishes that
#include "device/thread_pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"

enum { SPINS_BEFORE_SLEEP = 4000, STACK_BYTES = 8 << 20, CHUNKS_PER_THREAD = 2, CACHE_LINES_APART = 128 };

struct thread_pool {
    int size, started;
    _Atomic uint32_t generation;
    _Atomic int left;     // unfinished chunks of this generation
    _Atomic int sleepers; // threads asleep since the last wake
    _Atomic bool stop;
    struct thread_pool_work work; // this and the next two are read by holders of a chunk, and by the caller
    int each;                     // chunks per thread
    uint32_t first;               // the generation of step 0
    struct worker {
        _Atomic uint64_t chunks; // generation << 32 | chunks that are not taken
        struct thread_pool *pool;
        int number;
        pthread_t thread;
        char apart[CACHE_LINES_APART]; // padding against false sharing
    } *workers;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static uint32_t wait_past(struct thread_pool *pool, uint32_t generation)
{
    uint32_t now;
    for (int spin = 0; spin < SPINS_BEFORE_SLEEP; spin++) {
        if ((now = atomic_load_explicit(&pool->generation, memory_order_acquire)) != generation)
            return now;
        pause_briefly();
    }
    while ((now = atomic_load(&pool->generation)) == generation) {
        atomic_fetch_add(&pool->sleepers, 1);
        syscall(SYS_futex, &pool->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL, 0);
    }
    return now;
}

static void publish(struct thread_pool *pool, uint32_t generation)
{
    atomic_store(&pool->generation, generation);
    if (atomic_load(&pool->sleepers) && atomic_exchange(&pool->sleepers, 0))
        syscall(SYS_futex, &pool->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void start_step(struct thread_pool *pool, uint32_t generation)
{
    uint64_t chunks = (uint64_t)generation << 32 | (uint32_t)pool->each;
    atomic_store_explicit(&pool->left, pool->size * pool->each, memory_order_relaxed);
    for (int i = 0; i < pool->size; i++)
        atomic_store_explicit(&pool->workers[i].chunks, chunks, memory_order_relaxed);
    publish(pool, generation);
}

// Takes one chunk; *left is the count before, which identifies the chunk.
static bool take_chunk(_Atomic uint64_t *chunks, uint32_t generation, int *left)
{
    uint64_t word = atomic_load_explicit(chunks, memory_order_relaxed);
    while (word >> 32 == generation && (uint32_t)word)
        if (atomic_compare_exchange_weak_explicit(chunks, &word, word - 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            *left = (int)(uint32_t)word;
            return true;
        }
    return false;
}

static void run_chunk(struct thread_pool *pool, int chunk, uint32_t generation)
{
    const struct thread_pool_work *work = &pool->work;
    int step = (int)(generation - pool->first);
    work->run(work->context, step, chunk, pool->size * pool->each);
    if (atomic_fetch_sub(&pool->left, 1) > 1)
        return;
    if (step + 1 < work->steps)
        start_step(pool, generation + 1);
    else
        publish(pool, generation + 1); // idle: no chunk is marked with this generation
}

// Runs all chunks of this generation that are left, the thread's own first.
static void run_chunks(struct thread_pool *pool, int number, uint32_t generation)
{
    for (int i = 0; i < pool->size; i++) {
        int owner = (number + i) % pool->size, left;
        while (take_chunk(&pool->workers[owner].chunks, generation, &left))
            run_chunk(pool, (owner + 1) * pool->each - left, generation);
    }
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct thread_pool *pool = self->pool;
    for (uint32_t generation = 0;;) {
        generation = wait_past(pool, generation);
        if (pool->stop)
            return NULL;
        run_chunks(pool, self->number, generation);
    }
}

struct thread_pool *thread_pool_open(int threads, struct error *err)
{
    if (threads < 1 || threads > THREAD_POOL_MAX)
        return fail(err, "%d threads asked for; 1 to %d are possible", threads, THREAD_POOL_MAX), NULL;
    struct thread_pool *pool = memory_new(1, sizeof *pool);
    pool->size = threads;
    pool->workers = memory_new((size_t)threads, sizeof *pool->workers);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int status = 0;
    pool->started = 1; // the caller
    for (int number = 1; number < threads && !status; number++) {
        struct worker *worker = &pool->workers[number];
        *worker = (struct worker){ .pool = pool, .number = number };
        status = pthread_create(&worker->thread, &attributes, worker_main, worker);
        pool->started += !status;
    }
    pthread_attr_destroy(&attributes);
    if (!status)
        return pool;
    fail(err, "the system gives no thread number %d (%s); try --threads %d", pool->started + 1, strerror(status),
         pool->started);
    thread_pool_close(pool);
    return NULL;
}

void thread_pool_close(struct thread_pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    publish(pool, pool->generation + 1);
    for (int number = 1; number < pool->started; number++)
        pthread_join(pool->workers[number].thread, NULL);
    free(pool->workers);
    free(pool);
}

int thread_pool_size(const struct thread_pool *pool) { return pool->size; }

void thread_pool_run(struct thread_pool *pool, const struct thread_pool_work *work)
{
    uint32_t generation = atomic_load(&pool->generation) + 1;
    pool->work = *work;
    pool->each = work->divisible && pool->size > 1 ? CHUNKS_PER_THREAD : 1;
    pool->first = generation;
    start_step(pool, generation);
    uint32_t idle = generation + (uint32_t)work->steps;
    while (generation != idle) {
        run_chunks(pool, 0, generation);
        generation = wait_past(pool, generation);
    }
}

uint32_t thread_pool_progress(const struct thread_pool *pool)
{
    return atomic_load_explicit(&pool->generation, memory_order_relaxed);
}
