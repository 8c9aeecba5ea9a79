// SPDX-License-Identifier: Apache-2.0
// ranks/mpi_module.c: the functions of ranks/mpi_module.h on MPI point-to-point messages. These are as fast as MPI's
// collectives here, and unlike them can be abandoned when a rank is lost.
#include "ranks/mpi_module.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_ALL_GATHER = 1, TAG_BROADCAST = 2 };

struct mpi {
    int rank, size;
    MPI_Comm all;
    int pending;           // requests
    MPI_Request *requests; // (2 * size)
    int *peers;            // of each request
};

static bool check(int status, char *trouble)
{
    char words[MPI_MAX_ERROR_STRING];
    int len;
    if (status == MPI_SUCCESS)
        return true;
    if (MPI_Error_string(status, words, &len) != MPI_SUCCESS)
        snprintf(words, sizeof words, "error %d", status);
    snprintf(trouble, MPI_TEXT_MAX, "%s", words);
    return false;
}

static void library(char *words)
{
    char found[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;
    if (MPI_Get_library_version(found, &len) != MPI_SUCCESS)
        snprintf(found, sizeof found, "unknown");
    snprintf(words, MPI_TEXT_MAX, "%s", found);
    words[strcspn(words, ",\n")] = '\0'; // "Open MPI v4.1.4, package: ..."
}

// ---- opening and closing -------------------------------------------------------------------------------------------

static bool start_mpi(char *trouble)
{
    int running, level;
    if (!check(MPI_Initialized(&running), trouble))
        return false;
    if (running)
        return snprintf(trouble, MPI_TEXT_MAX, "it was started before"), false;
    if (!check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), trouble))
        return false;
    if (level < MPI_THREAD_SERIALIZED)
        return snprintf(trouble, MPI_TEXT_MAX, "it allows no calls from several threads"), false;
    return true;
}

static bool find_ranks(struct mpi *mpi, struct mpi_world *world, char *trouble)
{
    MPI_Comm here;
    if (!check(MPI_Comm_dup(MPI_COMM_WORLD, &mpi->all), trouble)
        || !check(MPI_Comm_set_errhandler(mpi->all, MPI_ERRORS_RETURN), trouble)
        || !check(MPI_Comm_rank(mpi->all, &mpi->rank), trouble) || !check(MPI_Comm_size(mpi->all, &mpi->size), trouble)
        || !check(MPI_Comm_split_type(mpi->all, MPI_COMM_TYPE_SHARED, mpi->rank, MPI_INFO_NULL, &here), trouble)
        || !check(MPI_Comm_size(here, &world->neighbours), trouble) || !check(MPI_Comm_free(&here), trouble))
        return false;
    world->rank = mpi->rank;
    world->size = mpi->size;
    return true;
}

static struct mpi *open_world(struct mpi_world *world, char *trouble)
{
    struct mpi *mpi = calloc(1, sizeof *mpi);
    snprintf(trouble, MPI_TEXT_MAX, "there is no memory for it");
    if (!mpi || !start_mpi(trouble) || !find_ranks(mpi, world, trouble))
        return free(mpi), NULL;
    mpi->requests = calloc(2 * (size_t)mpi->size, sizeof *mpi->requests);
    mpi->peers = calloc(2 * (size_t)mpi->size, sizeof *mpi->peers);
    if (mpi->requests && mpi->peers)
        return mpi;
    free(mpi->requests);
    free(mpi->peers);
    return free(mpi), NULL;
}

static void close_world(struct mpi *mpi)
{
    MPI_Barrier(mpi->all);
    MPI_Comm_free(&mpi->all);
    MPI_Finalize();
    free(mpi->requests);
    free(mpi->peers);
    free(mpi);
}

// ---- messages ------------------------------------------------------------------------------------------------------

static MPI_Request *next_request(struct mpi *mpi, int peer)
{
    mpi->peers[mpi->pending] = peer;
    return &mpi->requests[mpi->pending++];
}

static bool send_to_all(struct mpi *mpi, const void *data, size_t bytes, int tag, char *trouble)
{
    bool ok = true;
    for (int turn = 1; turn < mpi->size && ok; turn++) {
        int peer = (mpi->rank + turn) % mpi->size; // staggered, so that not all ranks send to the same one first
        ok = check(MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, mpi->all, next_request(mpi, peer)), trouble);
    }
    return ok;
}

static bool all_gather(struct mpi *mpi, const void *mine, void *all, size_t bytes, size_t stride, char *trouble)
{
    bool ok = true;
    mpi->pending = 0;
    for (int peer = 0; peer < mpi->size && ok; peer++)
        if (peer != mpi->rank)
            ok = check(MPI_Irecv((char *)all + (size_t)peer * stride, (int)bytes, MPI_BYTE, peer, TAG_ALL_GATHER,
                                 mpi->all, next_request(mpi, peer)),
                       trouble);
    char *own = (char *)all + (size_t)mpi->rank * stride;
    ok = ok && send_to_all(mpi, mine, bytes, TAG_ALL_GATHER, trouble);
    if (ok && own != mine)
        memcpy(own, mine, bytes);
    return ok;
}

static bool broadcast(struct mpi *mpi, const void *message, size_t bytes, char *trouble)
{
    mpi->pending = 0;
    return send_to_all(mpi, message, bytes, TAG_BROADCAST, trouble);
}

static bool probe(struct mpi *mpi, bool *there, size_t *bytes, char *trouble)
{
    MPI_Status status;
    int found, count = 0;
    if (!check(MPI_Iprobe(0, TAG_BROADCAST, mpi->all, &found, &status), trouble)
        || (found && !check(MPI_Get_count(&status, MPI_BYTE, &count), trouble)))
        return false;
    *there = found;
    *bytes = (size_t)count;
    return true;
}

static bool receive(struct mpi *mpi, void *message, size_t bytes, char *trouble)
{
    mpi->pending = 0;
    return check(MPI_Irecv(message, (int)bytes, MPI_BYTE, 0, TAG_BROADCAST, mpi->all, next_request(mpi, 0)), trouble);
}

static bool test(struct mpi *mpi, bool *done, char *trouble)
{
    int all_done = 0;
    if (!check(MPI_Testall(mpi->pending, mpi->requests, &all_done, MPI_STATUSES_IGNORE), trouble))
        return false;
    *done = all_done;
    return true;
}

static int first_pending(struct mpi *mpi)
{
    for (int i = 0; i < mpi->pending; i++) {
        int done = 0;
        if (MPI_Test(&mpi->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
            return mpi->peers[i];
    }
    return -1;
}

extern const struct mpi_module nibble_mpi_module; // found by dlsym

const struct mpi_module nibble_mpi_module = {
    .version = MPI_MODULE_VERSION,
    .library = library,
    .open = open_world,
    .close = close_world,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .probe = probe,
    .receive = receive,
    .test = test,
    .first_pending = first_pending,
};
