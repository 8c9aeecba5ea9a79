// SPDX-License-Identifier: Apache-2.0
#include "ranks/ranks.h"

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "ranks/mpi.h"
#include "ranks/rendezvous.h"
#include "ranks/failure_detector.h"

enum {
    TESTS_AT_ONCE = 200,    // some 20 us; on a busy machine every longer way of asking on was several times slower
    PART_SECONDS_MAX = 600, // a rank that lives, and yet gives nothing
    NAP_SHARE = 64,
};
static const double awake_seconds = 5e-3; // who waits for a message for longer goes to sleep, and is woken
static const double part_seconds = 20e-3, nap_seconds_max = 1e-3;

struct ranks {
    const struct mpi_module *module;
    struct mpi *mpi;
    struct mpi_world world;
    struct ranks_watch *watch;        // NULL until all have met
    double exchanged;                 // when the last thing was done together
    bool crowded;                     // more ranks than cores here: nobody waits by keeping one busy
    struct ranks_watch_place *places; // (size)
    char words[MPI_WORDS_MAX];
};

// ---- waiting ------------------------------------------------------------------------------------------------------

// First by asking again and again, then letting others run in between; how it goes on is for each to say.
struct wait {
    int tests;
    double began, seconds; // from when it took longer than a few tests
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// False: it has taken longer than that.
static bool rest_briefly(struct wait *wait, bool crowded, double seconds_max)
{
    if (!crowded && wait->tests++ < TESTS_AT_ONCE)
        return true;
    wait->began = wait->began > 0 ? wait->began : now();
    wait->seconds = now() - wait->began;
    if (wait->seconds >= seconds_max)
        return false;
    sched_yield();
    return true;
}

// For the others' parts: they compute the same just now. Asleep no more is lost than a share of the time that it took.
static void rest(struct wait *wait, bool crowded)
{
    if (rest_briefly(wait, crowded, part_seconds))
        return;
    double nap = wait->seconds / NAP_SHARE;
    nanosleep(&(struct timespec){ 0, (long)((nap < nap_seconds_max ? nap : nap_seconds_max) * 1e9) }, NULL);
}

// ---- what goes wrong ----------------------------------------------------------------------------------------------

static bool is_lost(const struct ranks *ranks, struct error *err)
{
    const char *lost = ranks_lost(ranks);
    if (lost)
        fail(err, "%s", lost);
    return lost;
}

static bool mpi_fails(struct ranks *ranks, const char *trouble, struct error *err)
{
    fail(err, "MPI gives up (%s)", trouble);
    ranks_give_up(ranks, err->text);
    return false;
}

static bool nobody_answers(struct ranks *ranks, struct error *err)
{
    int rank = ranks->module->missing(ranks->mpi);
    const struct ranks_watch_place *place = &ranks->places[rank < 0 ? 0 : rank];
    fail(err, "rank %d (%s, pid %d) has given nothing for %d s", rank, place->host, place->pid, PART_SECONDS_MAX);
    ranks_give_up(ranks, err->text);
    return false;
}

// Until what is under way is done.
static bool finish(struct ranks *ranks, struct error *err)
{
    char trouble[MPI_WORDS_MAX];
    struct wait wait = { 0 };
    for (bool done = false;; rest(&wait, ranks->crowded)) {
        if (!ranks->module->test(ranks->mpi, &done, trouble))
            return mpi_fails(ranks, trouble, err);
        if (done) {
            ranks->exchanged = now();
            return true;
        }
        if (is_lost(ranks, err))
            return false;
        if (wait.seconds > PART_SECONDS_MAX)
            return nobody_answers(ranks, err);
    }
}

// ---- opening ------------------------------------------------------------------------------------------------------

// What each rank tells all others first; where to meet is rank 0's to say.
struct card {
    struct ranks_watch_place place;
    struct meet_point point;
};

static struct card *gather_cards(struct ranks *ranks, const struct meet_point *point, struct error *err)
{
    struct card mine = { .place.pid = (int)getpid(), .point = *point };
    if (gethostname(mine.place.host, sizeof mine.place.host - 1) < 0)
        strcpy(mine.place.host, "unknown host");
    struct card *cards = memory_new((size_t)ranks->world.size, sizeof *cards);
    if (ranks_gather(ranks, &mine, cards, sizeof mine, sizeof mine, err))
        return cards;
    free(cards);
    return NULL;
}

// Nobody goes on unless all can. No trouble is an empty sentence.
static bool all_agree(struct ranks *ranks, const struct error *trouble, struct error *err)
{
    struct error *all = memory_new((size_t)ranks->world.size, sizeof *all);
    bool ok = ranks_gather(ranks, trouble, all, sizeof *all, sizeof *all, err);
    for (int rank = 0; rank < ranks->world.size && ok; rank++)
        ok = !all[rank].text[0] || fail(err, "%s", all[rank].text);
    free(all);
    return ok;
}

static bool meet(struct ranks *ranks, int listening, const struct card *cards, struct error *err)
{
    const struct mpi_world *world = &ranks->world;
    int sockets[RANKS_MAX];
    struct error trouble = { 0 };
    for (int rank = 0; rank < world->size; rank++) {
        ranks->places[rank] = cards[rank].place;
        sockets[rank] = -1;
    }
    bool met = world->rank == 0 ? meet_welcome(listening, &cards[0].point, world->size, sockets, &trouble)
                                : (sockets[0] = meet_come(&cards[0].point, world->rank, &trouble)) >= 0;
    ranks->watch = ranks_watch_open(world->rank, world->size, sockets, ranks->places, met ? &trouble : err);
    return all_agree(ranks, &trouble, err);
}

static bool come_together(struct ranks *ranks, struct error *err)
{
    const struct mpi_world *world = &ranks->world;
    struct meet_point point = { 0 };
    int listening = -1, launched = mpi_launched_size();
    if (launched > world->size)
        return fail(err,
                    "%d processes were started, but MPI brought %d together: start them with the mpirun of %s, or "
                    "srun with --mpi=pmix",
                    launched, world->size, ranks->words);
    if (world->size > RANKS_MAX)
        return fail(err, "%d ranks are more than the %d that can compute one model", world->size, RANKS_MAX);
    if (world->rank == 0 && (listening = meet_listen(&point, world->neighbours == world->size, err)) < 0)
        return false;
    struct card *cards = gather_cards(ranks, &point, err);
    bool ok = cards && meet(ranks, listening, cards, err);
    free(cards);
    return ok;
}

static int cores_here(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

struct ranks *ranks_open(struct error *err)
{
    char path[MPI_PATH_MAX], trouble[MPI_WORDS_MAX];
    const struct mpi_module *module = mpi_load(path, err);
    if (!module)
        return NULL;
    struct ranks *ranks = memory_new(1, sizeof *ranks);
    ranks->module = module;
    module->library(ranks->words);
    ranks->mpi = module->open(&ranks->world, trouble);
    if (!ranks->mpi) {
        fail(err, "MPI does not start (%s)", trouble);
        free(ranks);
        return NULL;
    }
    ranks->crowded = ranks->world.neighbours > cores_here();
    ranks->places = memory_new((size_t)ranks->world.size, sizeof *ranks->places);
    if (come_together(ranks, err))
        return ranks;
    ranks_close(ranks);
    return NULL;
}

// With a rank lost MPI would wait for it for ever: then it ends with the process.
void ranks_close(struct ranks *ranks)
{
    if (!ranks)
        return;
    if (ranks->watch && !ranks_lost(ranks)) {
        ranks_watch_announce_end(ranks->watch);
        ranks->module->close(ranks->mpi);
    }
    if (ranks->watch)
        ranks_watch_close(ranks->watch);
    free(ranks->places);
    free(ranks);
}

// ---- asking -------------------------------------------------------------------------------------------------------

int ranks_launched(void) { return mpi_launched_size(); }

int ranks_rank(const struct ranks *ranks) { return ranks->world.rank; }

int ranks_size(const struct ranks *ranks) { return ranks->world.size; }

int ranks_here(const struct ranks *ranks) { return ranks->world.neighbours; }

const char *ranks_host(const struct ranks *ranks, int rank) { return ranks->places[rank].host; }

const char *ranks_words(const struct ranks *ranks) { return ranks->words; }

int ranks_lost_fd(const struct ranks *ranks) { return ranks_watch_fd(ranks->watch); }

const char *ranks_lost(const struct ranks *ranks) { return ranks->watch ? ranks_watch_lost(ranks->watch) : NULL; }

bool ranks_speaks(const struct ranks *ranks) { return ranks_watch_speaks(ranks->watch); }

void ranks_give_up(struct ranks *ranks, const char *sentence)
{
    if (ranks->watch)
        ranks_watch_give_up(ranks->watch, sentence);
}

// ---- saying and hearing -------------------------------------------------------------------------------------------

bool ranks_gather(struct ranks *ranks, const void *mine, void *all, size_t bytes, size_t stride, struct error *err)
{
    char trouble[MPI_WORDS_MAX];
    assert(bytes <= INT_MAX && bytes <= stride);
    if (is_lost(ranks, err))
        return false;
    if (!ranks->module->gather(ranks->mpi, mine, all, bytes, stride, trouble))
        return mpi_fails(ranks, trouble, err);
    return finish(ranks, err);
}

bool ranks_tell(struct ranks *ranks, const void *message, size_t bytes, struct error *err)
{
    char trouble[MPI_WORDS_MAX];
    assert(ranks->world.rank == 0 && bytes <= INT_MAX);
    if (is_lost(ranks, err))
        return false;
    if (now() - ranks->exchanged > awake_seconds / 2)
        ranks_watch_wake(ranks->watch);
    if (!ranks->module->tell(ranks->mpi, message, bytes, trouble))
        return mpi_fails(ranks, trouble, err);
    return finish(ranks, err);
}

bool ranks_hear(struct ranks *ranks, struct strbuf *message, struct error *err)
{
    char trouble[MPI_WORDS_MAX];
    struct wait wait = { 0 };
    size_t bytes;
    assert(ranks->world.rank > 0);
    for (bool there = false;;) {
        if (is_lost(ranks, err))
            return false;
        if (!ranks->module->heard(ranks->mpi, &there, &bytes, trouble))
            return mpi_fails(ranks, trouble, err);
        if (there)
            break;
        if (!rest_briefly(&wait, ranks->crowded, awake_seconds) && ranks_watch_sleep(ranks->watch))
            wait = (struct wait){ 0 };
    }
    if (bytes + 1 > message->cap) {
        message->data = memory_grow(message->data, bytes + 1, 1);
        message->cap = bytes + 1;
    }
    message->len = bytes;
    message->data[bytes] = '\0';
    if (!ranks->module->hear(ranks->mpi, message->data, bytes, trouble))
        return mpi_fails(ranks, trouble, err);
    return finish(ranks, err);
}
