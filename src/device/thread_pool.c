// SPDX-License-Identifier: Apache-2.0
// device/thread_pool.c: each member takes its own parts first, which lie next to each other, and then what others have
// not begun. Members wait by spinning for a few microseconds (the next phase usually comes at once) and then sleep on a
// futex, so that an idle engine costs nothing and more threads than cores still make progress.
//   (1) `generation` numbers the phases of all times, and the rests between two works; it moves on when no part is left
//   (2) a part is taken only by who finds it marked with the generation it knows; as long as a part is not done, its
//       generation lasts, and with it everything that describes the work
//   (3) who finishes the last part marks all parts for the next generation before publishing it
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

enum { SPINS_BEFORE_SLEEP = 4000, STACK_BYTES = 8 << 20, PARTS_PER_MEMBER = 2, CACHE_LINES_APART = 128 };

struct thread_pool {
    int size, started;
    _Atomic uint32_t generation;
    _Atomic int left;     // parts of this generation that are not done
    _Atomic int sleepers; // since the last time they were woken
    _Atomic bool stop;
    struct thread_pool_work work; // this and the next two are read by who has taken a part, and by the caller
    int each;                     // parts for each member
    uint32_t first;               // generation of the first phase
    struct member {
        _Atomic uint64_t parts; // the generation, and below it how many of its parts nobody has taken
        struct thread_pool *team;
        int number;
        pthread_t thread;
        char apart[CACHE_LINES_APART]; // from the next one's, which another core writes
    } *members;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static uint32_t wait_past(struct thread_pool *team, uint32_t generation)
{
    uint32_t now;
    for (int spin = 0; spin < SPINS_BEFORE_SLEEP; spin++) {
        if ((now = atomic_load_explicit(&team->generation, memory_order_acquire)) != generation)
            return now;
        pause_briefly();
    }
    while ((now = atomic_load(&team->generation)) == generation) {
        atomic_fetch_add(&team->sleepers, 1);
        syscall(SYS_futex, &team->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL, 0);
    }
    return now;
}

static void publish(struct thread_pool *team, uint32_t generation)
{
    atomic_store(&team->generation, generation);
    if (atomic_load(&team->sleepers) && atomic_exchange(&team->sleepers, 0))
        syscall(SYS_futex, &team->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void start_phase(struct thread_pool *team, uint32_t generation)
{
    uint64_t parts = (uint64_t)generation << 32 | (uint32_t)team->each;
    atomic_store_explicit(&team->left, team->size * team->each, memory_order_relaxed);
    for (int i = 0; i < team->size; i++)
        atomic_store_explicit(&team->members[i].parts, parts, memory_order_relaxed);
    publish(team, generation);
}

// The parts a member has left count down; the number tells which one this is.
static bool take_part(_Atomic uint64_t *parts, uint32_t generation, int *left)
{
    uint64_t word = atomic_load_explicit(parts, memory_order_relaxed);
    while (word >> 32 == generation && (uint32_t)word)
        if (atomic_compare_exchange_weak_explicit(parts, &word, word - 1, memory_order_relaxed, memory_order_relaxed)) {
            *left = (int)(uint32_t)word;
            return true;
        }
    return false;
}

static void do_part(struct thread_pool *team, int part, uint32_t generation)
{
    const struct thread_pool_work *work = &team->work;
    int phase = (int)(generation - team->first);
    work->run(work->context, phase, part, team->size * team->each);
    if (atomic_fetch_sub(&team->left, 1) > 1)
        return;
    if (phase + 1 < work->phases)
        start_phase(team, generation + 1);
    else
        publish(team, generation + 1); // a rest: no part is marked with it
}

// Whatever this generation still has, beginning with the member's own parts.
static void help(struct thread_pool *team, int number, uint32_t generation)
{
    for (int turn = 0; turn < team->size; turn++) {
        int owner = (number + turn) % team->size, left;
        while (take_part(&team->members[owner].parts, generation, &left))
            do_part(team, (owner + 1) * team->each - left, generation);
    }
}

static void *member_main(void *argument)
{
    struct member *self = argument;
    struct thread_pool *team = self->team;
    for (uint32_t generation = 0;;) {
        generation = wait_past(team, generation);
        if (team->stop)
            return NULL;
        help(team, self->number, generation);
    }
}

struct thread_pool *thread_pool_open(int threads, struct error *err)
{
    if (threads < 1 || threads > TEAM_THREADS_MAX)
        return fail(err, "%d threads asked for; 1 to %d are possible", threads, TEAM_THREADS_MAX), NULL;
    struct thread_pool *team = memory_new(1, sizeof *team);
    team->size = threads;
    team->members = memory_new((size_t)threads, sizeof *team->members);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int status = 0;
    team->started = 1; // the caller
    for (int number = 1; number < threads && !status; number++) {
        struct member *member = &team->members[number];
        *member = (struct member){ .team = team, .number = number };
        status = pthread_create(&member->thread, &attributes, member_main, member);
        team->started += !status;
    }
    pthread_attr_destroy(&attributes);
    if (!status)
        return team;
    fail(err, "the system gives no thread number %d (%s); try --threads %d", team->started + 1, strerror(status),
         team->started);
    thread_pool_close(team);
    return NULL;
}

void thread_pool_close(struct thread_pool *team)
{
    if (!team)
        return;
    team->stop = true;
    publish(team, team->generation + 1);
    for (int number = 1; number < team->started; number++)
        pthread_join(team->members[number].thread, NULL);
    free(team->members);
    free(team);
}

int thread_pool_size(const struct thread_pool *team) { return team->size; }

void thread_pool_run(struct thread_pool *team, const struct thread_pool_work *work)
{
    uint32_t generation = atomic_load(&team->generation) + 1;
    team->work = *work;
    team->each = work->divisible && team->size > 1 ? PARTS_PER_MEMBER : 1;
    team->first = generation;
    start_phase(team, generation);
    uint32_t rest = generation + (uint32_t)work->phases;
    while (generation != rest) {
        help(team, 0, generation);
        generation = wait_past(team, generation);
    }
}

uint32_t thread_pool_progress(const struct thread_pool *team)
{
    return atomic_load_explicit(&team->generation, memory_order_relaxed);
}
