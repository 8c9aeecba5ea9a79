// SPDX-License-Identifier: Apache-2.0
// engine/kernels/cuda_time.c: the microbenchmark of one row on a GPU. It runs on several copies of a test case
// round-robin, so that each launch finds its operands in memory and not in the L2 cache, and in one captured graph, so
// that the host adds no launch overhead.
#include <stdlib.h>

#include "device/cuda.h"
#include "engine/kernels/cuda.h"

enum { COPIES_MAX = 64, LAUNCHES_ENOUGH = 12, REPLAYS = 5 };
static const size_t bytes_between = 256 << 20; // that other copies read and write before one comes again
static const double seconds_enough = 2e-3;     // for one replay
static const double seconds_warm = 30e-3;

struct timing {
    struct cuda *cuda;
    struct gpu_testcase copies[COPIES_MAX];
    int count, rounds;
    struct cuda_graph *graph;
    struct cuda_event *start, *end;
};

static bool open_copies(struct timing *timing, const struct kernel *kernel, struct testcase *testcase,
                        struct error *err)
{
    int wanted = 1 + (int)(bytes_between / (testcase->bytes_moved + 1));
    wanted = wanted < COPIES_MAX ? wanted : COPIES_MAX;
    while (timing->count < wanted) {
        struct gpu_testcase *copy = &timing->copies[timing->count];
        if (!(timing->count ? gpu_testcase_copy(copy, &timing->copies[0], kernel, err)
                            : gpu_testcase_open(copy, timing->cuda, kernel, testcase, err)))
            return false;
        timing->count++;
    }
    return true;
}

static bool launch_all(struct timing *timing, int rounds, struct error *err)
{
    for (int i = 0; i < rounds * timing->count; i++)
        if (!gpu_testcase_launch(&timing->copies[i % timing->count], err))
            return false;
    return true;
}

// How often a replay goes through all copies: a long launch needs no company to be timed.
static bool choose_rounds(struct timing *timing, struct error *err)
{
    double seconds;
    if (!launch_all(timing, 1, err) // what is loaded or chosen at first use is then there
        || !cuda_event_record(timing->cuda, timing->start, err) || !launch_all(timing, 1, err)
        || !cuda_event_record(timing->cuda, timing->end, err) || !cuda_wait(timing->cuda, err)
        || !cuda_event_seconds(timing->cuda, timing->start, timing->end, &seconds, err))
        return false;
    timing->rounds = 1 + LAUNCHES_ENOUGH / timing->count;
    while (timing->rounds > 1 && seconds * (timing->rounds - 1) > seconds_enough)
        timing->rounds--;
    return true;
}

static bool capture(struct timing *timing, struct error *err)
{
    struct error ignored;
    if (!cuda_capture_begin(timing->cuda, err))
        return false;
    bool ok = launch_all(timing, timing->rounds, err);
    timing->graph = cuda_capture_end(timing->cuda, ok ? err : &ignored);
    return ok && timing->graph;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool replay(struct timing *timing, double *seconds, struct error *err)
{
    return cuda_event_record(timing->cuda, timing->start, err) && cuda_replay(timing->cuda, timing->graph, err)
        && cuda_event_record(timing->cuda, timing->end, err) && cuda_wait(timing->cuda, err)
        && cuda_event_seconds(timing->cuda, timing->start, timing->end, seconds, err);
}

// Before it counts, the graph runs for a while: drivers clear freed memory in the background, and after test cases of
// some GB that takes a part of the bandwidth for some milliseconds.
static bool replay_all(struct timing *timing, double *seconds, struct error *err)
{
    double times[REPLAYS], warm = 0;
    while (warm < seconds_warm) {
        if (!replay(timing, &times[0], err))
            return false;
        warm += times[0];
    }
    for (int i = 0; i < REPLAYS; i++)
        if (!replay(timing, &times[i], err))
            return false;
    qsort(times, REPLAYS, sizeof *times, compare);
    *seconds = times[REPLAYS / 2] / (timing->rounds * timing->count);
    return true;
}

bool gpu_testcase_time(struct cuda *cuda, const struct kernel *kernel, struct testcase *testcase, double *seconds,
                       struct error *err)
{
    struct timing *timing = memory_new(1, sizeof *timing);
    timing->cuda = cuda;
    bool ok = open_copies(timing, kernel, testcase, err) && (timing->start = cuda_event_new(cuda, err))
        && (timing->end = cuda_event_new(cuda, err)) && choose_rounds(timing, err) && capture(timing, err)
        && replay_all(timing, seconds, err);
    cuda_event_free(cuda, timing->start);
    cuda_event_free(cuda, timing->end);
    cuda_graph_free(cuda, timing->graph);
    while (timing->count)
        gpu_testcase_close(&timing->copies[--timing->count]);
    free(timing);
    return ok;
}
