// SPDX-License-Identifier: Apache-2.0
#include "ranks/ranks.h"

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ranks/mpi.h"
#include "ranks/rendezvous.h"
#include "ranks/failure_detector.h"

enum {
    SPINS_BEFORE_YIELD = 200,   // about 20 us; longer spinning was several times slower on a busy machine
    EXCHANGE_SECONDS_MAX = 600, // for a rank that is alive but sends nothing
    SLEEP_FRACTION = 64,
};
static const double poll_seconds = 5e-3; // a receiver polls this long, then sleeps until woken
static const double yield_seconds = 20e-3, sleep_seconds_max = 1e-3;

struct ranks {
    const struct mpi_module *module;
    struct mpi *mpi;
    struct mpi_world world;
    struct failure_detector *detector; // NULL until all ranks are connected
    double last_exchange;              // time of the last completed operation
    bool oversubscribed;               // more ranks than cores on this host: no spinning
    struct rank_place *places;         // (size)
    char library[MPI_TEXT_MAX];
};

// ---- waiting -------------------------------------------------------------------------------------------------------

// A wait first spins, then yields; the caller decides what follows.
struct wait {
    int tests;
    double began, seconds; // since the end of spinning
};

// Spins or yields once; false after seconds_max of yielding.
static bool spin_or_yield(struct wait *wait, bool oversubscribed, double seconds_max)
{
    if (!oversubscribed && wait->tests++ < SPINS_BEFORE_YIELD)
        return true;
    wait->began = wait->began > 0 ? wait->began : clock_now();
    wait->seconds = clock_now() - wait->began;
    if (wait->seconds >= seconds_max)
        return false;
    sched_yield();
    return true;
}

// Waits for peers that compute at the same time. After yield_seconds it sleeps, each time for a small fraction of the
// time waited so far, which bounds the added latency.
static void back_off(struct wait *wait, bool oversubscribed)
{
    if (spin_or_yield(wait, oversubscribed, yield_seconds))
        return;
    double sleep_seconds = wait->seconds / SLEEP_FRACTION;
    nanosleep(
        &(struct timespec){ 0, (long)((sleep_seconds < sleep_seconds_max ? sleep_seconds : sleep_seconds_max) * 1e9) },
        NULL);
}

// ---- failures -----------------------------------------------------------------------------------------------------

static bool fail_if_lost(const struct ranks *ranks, struct error *err)
{
    const char *lost = ranks_lost(ranks);
    if (lost)
        fail(err, "%s", lost);
    return lost;
}

static bool fail_mpi(struct ranks *ranks, const char *trouble, struct error *err)
{
    fail(err, "MPI gives up (%s)", trouble);
    ranks_give_up(ranks, err->text);
    return false;
}

static bool fail_timeout(struct ranks *ranks, struct error *err)
{
    int rank = ranks->module->first_pending(ranks->mpi);
    const struct rank_place *place = &ranks->places[rank < 0 ? 0 : rank];
    fail(err, "rank %d (%s, pid %d) has given nothing for %d s", rank, place->host, place->pid, EXCHANGE_SECONDS_MAX);
    ranks_give_up(ranks, err->text);
    return false;
}

// Waits until the pending operation is complete.
static bool wait_pending(struct ranks *ranks, struct error *err)
{
    char trouble[MPI_TEXT_MAX];
    struct wait wait = { 0 };
    for (bool done = false;; back_off(&wait, ranks->oversubscribed)) {
        if (!ranks->module->test(ranks->mpi, &done, trouble))
            return fail_mpi(ranks, trouble, err);
        if (done) {
            ranks->last_exchange = clock_now();
            return true;
        }
        if (fail_if_lost(ranks, err))
            return false;
        if (wait.seconds > EXCHANGE_SECONDS_MAX)
            return fail_timeout(ranks, err);
    }
}

// ---- opening -------------------------------------------------------------------------------------------------------

// The first message of each rank to all: its host and pid, and from rank 0 the address to connect to.
struct card {
    struct rank_place place;
    struct rendezvous_point point;
};

static struct card *exchange_cards(struct ranks *ranks, const struct rendezvous_point *point, struct error *err)
{
    struct card mine = { .place.pid = (int)getpid(), .point = *point };
    if (gethostname(mine.place.host, sizeof mine.place.host - 1) < 0)
        strcpy(mine.place.host, "unknown host");
    struct card *cards = memory_new((size_t)ranks->world.size, sizeof *cards);
    if (ranks_all_gather(ranks, &mine, cards, sizeof mine, sizeof mine, err))
        return cards;
    free(cards);
    return NULL;
}

// Fails on all ranks if one of them has failed; an empty text is success.
static bool all_agree(struct ranks *ranks, const struct error *trouble, struct error *err)
{
    struct error *all = memory_new((size_t)ranks->world.size, sizeof *all);
    bool ok = ranks_all_gather(ranks, trouble, all, sizeof *all, sizeof *all, err);
    for (int rank = 0; rank < ranks->world.size && ok; rank++)
        ok = !all[rank].text[0] || fail(err, "%s", all[rank].text);
    free(all);
    return ok;
}

static bool connect_ranks(struct ranks *ranks, int listening, const struct card *cards, struct error *err)
{
    const struct mpi_world *world = &ranks->world;
    int sockets[RANKS_MAX];
    struct error trouble = { 0 };
    for (int rank = 0; rank < world->size; rank++) {
        ranks->places[rank] = cards[rank].place;
        sockets[rank] = -1;
    }
    bool met = world->rank == 0 ? rendezvous_accept(listening, &cards[0].point, world->size, sockets, &trouble)
                                : (sockets[0] = rendezvous_connect(&cards[0].point, world->rank, &trouble)) >= 0;
    ranks->detector = failure_detector_open(world->rank, world->size, sockets, ranks->places, met ? &trouble : err);
    return all_agree(ranks, &trouble, err);
}

static bool join(struct ranks *ranks, struct error *err)
{
    const struct mpi_world *world = &ranks->world;
    struct rendezvous_point point = { 0 };
    int listening = -1, launched = mpi_launched_size();
    if (launched > world->size)
        return fail(err,
                    "%d processes were started, but MPI brought %d together: start them with the mpirun of %s, or "
                    "srun with --mpi=pmix",
                    launched, world->size, ranks->library);
    if (world->size > RANKS_MAX)
        return fail(err, "%d ranks are more than the %d that can compute one model", world->size, RANKS_MAX);
    if (world->rank == 0 && (listening = rendezvous_listen(&point, world->neighbours == world->size, err)) < 0)
        return false;
    struct card *cards = exchange_cards(ranks, &point, err);
    bool ok = cards && connect_ranks(ranks, listening, cards, err);
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
    char path[MPI_PATH_MAX], trouble[MPI_TEXT_MAX];
    const struct mpi_module *module = mpi_load(path, err);
    if (!module)
        return NULL;
    struct ranks *ranks = memory_new(1, sizeof *ranks);
    ranks->module = module;
    module->library(ranks->library);
    ranks->mpi = module->open(&ranks->world, trouble);
    if (!ranks->mpi) {
        fail(err, "MPI does not start (%s)", trouble);
        free(ranks);
        return NULL;
    }
    ranks->oversubscribed = ranks->world.neighbours > cores_here();
    ranks->places = memory_new((size_t)ranks->world.size, sizeof *ranks->places);
    if (join(ranks, err))
        return ranks;
    ranks_close(ranks);
    return NULL;
}

// If a rank is lost, MPI_Finalize would wait forever and is skipped.
void ranks_close(struct ranks *ranks)
{
    if (!ranks)
        return;
    if (ranks->detector && !ranks_lost(ranks)) {
        failure_detector_announce_end(ranks->detector);
        ranks->module->close(ranks->mpi);
    }
    if (ranks->detector)
        failure_detector_close(ranks->detector);
    free(ranks->places);
    free(ranks);
}

// ---- getters ------------------------------------------------------------------------------------------------------

int ranks_launched(void) { return mpi_launched_size(); }

int ranks_rank(const struct ranks *ranks) { return ranks->world.rank; }

int ranks_size(const struct ranks *ranks) { return ranks->world.size; }

int ranks_here(const struct ranks *ranks) { return ranks->world.neighbours; }

const char *ranks_host(const struct ranks *ranks, int rank) { return ranks->places[rank].host; }

const char *ranks_library(const struct ranks *ranks) { return ranks->library; }

int ranks_lost_fd(const struct ranks *ranks) { return failure_detector_fd(ranks->detector); }

const char *ranks_lost(const struct ranks *ranks)
{
    return ranks->detector ? failure_detector_lost(ranks->detector) : NULL;
}

bool ranks_reports_loss(const struct ranks *ranks) { return failure_detector_reports_loss(ranks->detector); }

void ranks_give_up(struct ranks *ranks, const char *sentence)
{
    if (ranks->detector)
        failure_detector_give_up(ranks->detector, sentence);
}

// ---- collectives --------------------------------------------------------------------------------------------------

bool ranks_all_gather(struct ranks *ranks, const void *mine, void *all, size_t bytes, size_t stride, struct error *err)
{
    char trouble[MPI_TEXT_MAX];
    assert(bytes <= INT_MAX && bytes <= stride);
    if (fail_if_lost(ranks, err))
        return false;
    if (!ranks->module->all_gather(ranks->mpi, mine, all, bytes, stride, trouble))
        return fail_mpi(ranks, trouble, err);
    return wait_pending(ranks, err);
}

bool ranks_broadcast(struct ranks *ranks, const void *message, size_t bytes, struct error *err)
{
    char trouble[MPI_TEXT_MAX];
    assert(ranks->world.rank == 0 && bytes <= INT_MAX);
    if (fail_if_lost(ranks, err))
        return false;
    if (clock_now() - ranks->last_exchange > poll_seconds / 2)
        failure_detector_wake(ranks->detector);
    if (!ranks->module->broadcast(ranks->mpi, message, bytes, trouble))
        return fail_mpi(ranks, trouble, err);
    return wait_pending(ranks, err);
}

bool ranks_receive(struct ranks *ranks, struct strbuf *message, struct error *err)
{
    char trouble[MPI_TEXT_MAX];
    struct wait wait = { 0 };
    size_t bytes;
    assert(ranks->world.rank > 0);
    for (bool there = false;;) {
        if (fail_if_lost(ranks, err))
            return false;
        if (!ranks->module->probe(ranks->mpi, &there, &bytes, trouble))
            return fail_mpi(ranks, trouble, err);
        if (there)
            break;
        if (!spin_or_yield(&wait, ranks->oversubscribed, poll_seconds) && failure_detector_sleep(ranks->detector))
            wait = (struct wait){ 0 };
    }
    if (bytes + 1 > message->cap) {
        message->data = memory_grow(message->data, bytes + 1, 1);
        message->cap = bytes + 1;
    }
    message->len = bytes;
    message->data[bytes] = '\0';
    if (!ranks->module->receive(ranks->mpi, message->data, bytes, trouble))
        return fail_mpi(ranks, trouble, err);
    return wait_pending(ranks, err);
}
