// SPDX-License-Identifier: Apache-2.0
// test/unit/kernel_run.h: runs a kernel the way tests look at it: into however many parts the work is cut, the bits are
// the same, and nothing is written beside the result.
#ifndef TEST_KERNEL_RUN_H
#define TEST_KERNEL_RUN_H

#include <math.h>

#include "base/random.h"
#include "container.h"
#include "kernel/kernel.h"

enum { GUARD_BYTES = 256, GUARD = 0xA5, OUTS_MAX = 3 };

static const double epsilon = 0x1p-23; // twice the largest rounding error

struct guarded {
    uint8_t *room;
    void *data; // between the guards, filled with their byte at first
    size_t bytes;
};

static inline struct guarded guarded_new(size_t bytes)
{
    struct guarded guarded = { .room = malloc(bytes + 2 * GUARD_BYTES), .bytes = bytes };
    memset(guarded.room, GUARD, bytes + 2 * GUARD_BYTES);
    guarded.data = guarded.room + GUARD_BYTES;
    return guarded;
}

static inline struct guarded guarded_floats(size_t count) { return guarded_new(count * sizeof(float)); }

static inline struct guarded guarded_random(uint64_t *seed, size_t count)
{
    struct guarded guarded = guarded_floats(count);
    random_fill(seed, guarded.data, count);
    return guarded;
}

static inline void guarded_free(struct guarded *guarded)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (guarded->room[i] != GUARD || guarded->room[GUARD_BYTES + guarded->bytes + i] != GUARD)
            fail_msg("a guard byte was overwritten");
    free(guarded->room);
}

struct run {
    void (*run)(const void *args, int chunk, int chunks);
    const void *args;
    struct guarded *outs[OUTS_MAX]; // what it writes (and, in place, reads)
};

static inline void copy_outs(const struct run *run, struct guarded copies[OUTS_MAX], bool back)
{
    for (int i = 0; i < OUTS_MAX && run->outs[i]; i++) {
        if (!copies[i].room)
            copies[i] = guarded_new(run->outs[i]->bytes);
        memcpy(back ? run->outs[i]->data : copies[i].data, back ? copies[i].data : run->outs[i]->data, copies[i].bytes);
    }
}

// Runs in one part, then in several, the last part first: always the same bits.
static inline void run_kernel(struct run run)
{
    static const int cuts[] = { 2, 3, 7 };
    struct guarded before[OUTS_MAX] = { 0 }, after[OUTS_MAX] = { 0 };
    copy_outs(&run, before, false);
    run.run(run.args, 0, 1);
    copy_outs(&run, after, false);
    for (size_t i = 0; i < COUNT_OF(cuts); i++) {
        copy_outs(&run, before, true);
        for (int part = cuts[i] - 1; part >= 0; part--)
            run.run(run.args, part, cuts[i]);
        for (int j = 0; j < OUTS_MAX && run.outs[j]; j++)
            assert_memory_equal(run.outs[j]->data, after[j].data, after[j].bytes);
    }
    for (int i = 0; i < OUTS_MAX && run.outs[i]; i++)
        guarded_free(&before[i]), guarded_free(&after[i]);
}

static inline void check_near(float found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g within %g", found, expected, tolerance);
}

#endif
