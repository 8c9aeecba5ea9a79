// SPDX-License-Identifier: Apache-2.0
// engine/ranks/public.c: the C API of ranks: nibble_ranks_*.
#include "engine/ranks/public.h"

#include <stdlib.h>

#include "base/public.h"
#include "ranks/mpi.h"
#include "engine/ranks/worker.h"
#include "engine/ranks/protocol.h"

struct nibble_ranks *nibble_ranks_open(const char *flags, struct error *err)
{
    struct nibble_ranks *ranks = memory_new(1, sizeof *ranks);
    ranks->group.ranks = ranks_open(err);
    if (ranks->group.ranks && group_compare(&ranks->group, flags, err))
        return ranks;
    if (ranks->group.ranks)
        ranks_close(ranks->group.ranks);
    free(ranks);
    return NULL;
}

bool nibble_ranks_can_launch(struct error *err)
{
    char path[MPI_PATH_MAX];
    bool module = mpi_load(path, err), launcher = mpi_find_launcher(path);
    static const char no_launcher[] = "mpirun, which starts the other processes, is not on the PATH";
    if (!launcher && module)
        fail(err, "%s; install MPI (on Debian: openmpi-bin)", no_launcher);
    else if (!launcher)
        fail_within(err, "%s, and the module that they speak through is missing, too", no_launcher);
    return launcher && module;
}

int nibble_ranks_rank(const struct nibble_ranks *ranks) { return group_rank(&ranks->group); }

int nibble_ranks_size(const struct nibble_ranks *ranks) { return group_size(&ranks->group); }

int nibble_ranks_launched(void) { return ranks_launched(); }

int nibble_ranks_launched_rank(void) { return mpi_launched_rank(); }

int nibble_ranks_launched_here(void) { return mpi_launched_here(); }

const char *nibble_ranks_lost(const struct nibble_ranks *ranks) { return ranks_lost(ranks->group.ranks); }

int nibble_ranks_lost_fd(const struct nibble_ranks *ranks) { return ranks_lost_fd(ranks->group.ranks); }

bool nibble_ranks_reports(const struct nibble_ranks *ranks) { return ranks_reports_loss(ranks->group.ranks); }

bool nibble_ranks_work(struct nibble_ranks *ranks, struct error *err) { return worker_run(&ranks->group, err); }

void nibble_ranks_close(struct nibble_ranks *ranks)
{
    if (!ranks)
        return;
    struct strbuf message = { 0 };
    struct error ignored; // a rank that is gone gets no message
    protocol_write_head(&message, PROTOCOL_END, 0);
    if (!group_rank(&ranks->group))
        ranks_broadcast(ranks->group.ranks, message.data, message.len, &ignored);
    strbuf_free(&message);
    ranks_close(ranks->group.ranks);
    free(ranks);
}
