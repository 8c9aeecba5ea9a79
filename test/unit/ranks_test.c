// SPDX-License-Identifier: Apache-2.0
// The collectives of ranks, as a program for mpirun (test/e2e/test_ranks.py starts it; no model is needed):
//     ranks_test agree           gathers and messages of many sizes come through whole and in order
//     ranks_test speed           microseconds per gather
//     ranks_test work            gathers until a rank is lost; rank 0 prints the sentence
//     ranks_test idle            rank 0 waits for a rank to be lost, the others for a message
//     ranks_test stuck           nobody asks for anything: the watch alone must end them
//     ranks_test refuse          rank 1 gives up with a reason
// Each rank first prints "RANK PID". The status is 0 where all went well and 1 where a rank was lost.
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "ranks/ranks.h"

enum { ROUNDS = 300, BYTES_MAX = 1 << 21 };

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static uint8_t byte_of(int rank, int round, size_t at)
{
    return (uint8_t)(rank * 31 + round * 7 + (int)(at * 13 >> 3) + (int)at);
}

static bool check_round(struct ranks *ranks, int round, size_t bytes, struct error *err)
{
    int size = ranks_size(ranks), rank = ranks_rank(ranks);
    size_t stride = bytes + 64;
    uint8_t *all = memory_new((size_t)size, stride), *mine = all + (size_t)rank * stride;
    for (size_t i = 0; i < bytes; i++)
        mine[i] = byte_of(rank, round, i);
    bool ok = ranks_all_gather(ranks, mine, all, bytes, stride, err);
    for (int peer = 0; peer < size && ok; peer++)
        for (size_t i = 0; i < bytes && ok; i++)
            ok = all[(size_t)peer * stride + i] == byte_of(peer, round, i)
                || fail(err, "round %d: byte %zu of rank %d is wrong", round, i, peer);
    free(all);
    return ok;
}

static bool check_message(struct ranks *ranks, int round, size_t bytes, struct strbuf *message, struct error *err)
{
    if (ranks_rank(ranks) == 0) {
        message->len = 0;
        for (size_t i = 0; i < bytes; i++)
            strbuf_add_byte(message, (char)byte_of(0, round, i));
        return ranks_broadcast(ranks, message->data, bytes, err);
    }
    if (!ranks_receive(ranks, message, err))
        return false;
    bool ok = message->len == bytes || fail(err, "round %d: %zu bytes instead of %zu", round, message->len, bytes);
    for (size_t i = 0; i < bytes && ok; i++)
        ok = (uint8_t)message->data[i] == byte_of(0, round, i) || fail(err, "round %d: byte %zu is wrong", round, i);
    return ok;
}

static bool agree(struct ranks *ranks, struct error *err)
{
    uint32_t random = 1;
    struct strbuf message = { 0 };
    bool ok = true;
    for (int round = 0; round < ROUNDS && ok; round++) {
        size_t bytes = next_random(&random) % (BYTES_MAX >> (round % 21)), length = next_random(&random) >> 19;
        ok = check_message(ranks, round, length, &message, err) && check_round(ranks, round, bytes, err);
    }
    strbuf_free(&message);
    return ok;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool speed(struct ranks *ranks, struct error *err)
{
    const size_t sizes[] = { 2304, 65536, 1 << 20 };
    double times[ROUNDS];
    char *all = memory_new((size_t)ranks_size(ranks), BYTES_MAX), *mine = all + (size_t)ranks_rank(ranks) * BYTES_MAX;
    bool ok = true;
    for (int i = 0; i < 3 && ok; i++) {
        for (int round = 0; round < ROUNDS && ok; round++) {
            double from = now();
            ok = ranks_all_gather(ranks, mine, all, sizes[i], BYTES_MAX, err);
            times[round] = now() - from;
        }
        qsort(times, ROUNDS, sizeof *times, compare);
        if (ranks_rank(ranks) == 0)
            printf("%zu bytes: %.2f us\n", sizes[i], times[ROUNDS / 2] * 1e6);
    }
    free(all);
    return ok;
}

static bool work(struct ranks *ranks, struct error *err)
{
    char all[RANKS_MAX][2304];
    while (ranks_all_gather(ranks, all[ranks_rank(ranks)], all, sizeof *all, sizeof *all, err))
        ;
    return false;
}

static bool idle(struct ranks *ranks, struct error *err)
{
    struct strbuf message = { 0 };
    struct pollfd lost = { .fd = ranks_lost_fd(ranks), .events = POLLIN };
    if (ranks_rank(ranks) > 0) {
        ranks_receive(ranks, &message, err);
    } else {
        poll(&lost, 1, -1);
        fail(err, "%s", ranks_lost(ranks));
    }
    strbuf_free(&message);
    return false;
}

static bool stuck(struct ranks *ranks, struct error *err)
{
    (void)ranks;
    sleep(60);
    return fail(err, "nobody ended this");
}

static bool refuse(struct ranks *ranks, struct error *err)
{
    sleep(1); // what the others have printed has come through by then
    if (ranks_rank(ranks) == 1)
        ranks_give_up(ranks, "the device is on fire");
    return idle(ranks, err);
}

static const struct {
    const char *name;
    bool (*run)(struct ranks *ranks, struct error *err);
} deeds[] = {
    { "agree", agree }, { "speed", speed }, { "work", work },
    { "idle", idle },   { "stuck", stuck }, { "refuse", refuse },
};

int main(int argc, char **argv)
{
    struct error err;
    signal(SIGTERM, SIG_IGN); // mpirun's, which is as quick as the watch
    struct ranks *ranks = ranks_open(&err);
    if (!ranks)
        return fprintf(stderr, "%s\n", err.text), 1;
    printf("%d %d\n", ranks_rank(ranks), (int)getpid());
    fflush(stdout);
    bool ok = true;
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds && argc == 2; i++)
        if (!strcmp(argv[1], deeds[i].name))
            ok = deeds[i].run(ranks, &err);
    if (!ok && ranks_reports_loss(ranks))
        fprintf(stderr, "%s\n", err.text);
    ranks_close(ranks);
    return !ok;
}
