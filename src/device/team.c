// SPDX-License-Identifier: Apache-2.0
// device/team.c: members wait by spinning for a few microseconds (the next op usually comes at once) and then sleep on
// a futex, so that an idle engine costs nothing and more threads than cores still make progress.
//   (1) `generation` changes exactly once per barrier, after the last member arrived
//   (2) a job is published before the barrier that starts it and is over after the barrier that ends it
#include "device/team.h"

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

enum { SPINS_BEFORE_SLEEP = 4000, STACK_BYTES = 8 << 20 };

struct team {
    _Atomic int size; // lowered, with members already waiting, when the system gives no more threads
    int started;
    _Atomic int arrived;
    _Atomic uint32_t generation;
    _Atomic int sleepers;
    bool stop;
    void (*work)(void *context, int part, int parts);
    void *context;
    struct member {
        struct team *team;
        int part;
        pthread_t thread;
    } *members;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_past(struct team *team, uint32_t generation)
{
    for (int spin = 0; spin < SPINS_BEFORE_SLEEP; spin++) {
        if (atomic_load_explicit(&team->generation, memory_order_acquire) != generation)
            return;
        pause_briefly();
    }
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(&team->generation) == generation)
        syscall(SYS_futex, &team->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL, 0);
    atomic_fetch_sub(&team->sleepers, 1);
}

void team_barrier(struct team *team)
{
    uint32_t generation = atomic_load_explicit(&team->generation, memory_order_acquire);
    if (atomic_fetch_add(&team->arrived, 1) + 1 < team->size) {
        wait_past(team, generation);
        return;
    }
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    atomic_store(&team->generation, generation + 1);
    if (atomic_load(&team->sleepers))
        syscall(SYS_futex, &team->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *member_main(void *argument)
{
    struct member *self = argument;
    struct team *team = self->team;
    for (;;) {
        team_barrier(team);
        if (team->stop)
            return NULL;
        team->work(team->context, self->part, team->size);
        team_barrier(team);
    }
}

struct team *team_open(int threads, struct error *err)
{
    if (threads < 1 || threads > TEAM_THREADS_MAX)
        return fail(err, "%d threads asked for; 1 to %d are possible", threads, TEAM_THREADS_MAX), NULL;
    struct team *team = memory_new(1, sizeof *team);
    team->size = threads;
    team->members = memory_new((size_t)threads, sizeof *team->members);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int status = 0;
    team->started = 1; // the caller
    for (int part = 1; part < threads && !status; part++) {
        struct member *member = &team->members[part];
        *member = (struct member){ .team = team, .part = part };
        status = pthread_create(&member->thread, &attributes, member_main, member);
        team->started += !status;
    }
    pthread_attr_destroy(&attributes);
    if (!status)
        return team;
    fail(err, "the system gives no thread number %d (%s); try --threads %d", team->started + 1, strerror(status),
         team->started);
    team->size = team->started; // those that run wait at the first barrier with the caller
    team_close(team);
    return NULL;
}

void team_close(struct team *team)
{
    if (!team)
        return;
    team->stop = true;
    team_barrier(team);
    for (int part = 1; part < team->started; part++)
        pthread_join(team->members[part].thread, NULL);
    free(team->members);
    free(team);
}

int team_size(const struct team *team)
{
    return team->size;
}

void team_run(struct team *team, void (*work)(void *context, int part, int parts), void *context)
{
    team->work = work;
    team->context = context;
    team_barrier(team);
    work(context, 0, team->size);
    team_barrier(team);
}
