// SPDX-License-Identifier: Apache-2.0
// engine/ranks/public.c: nibble_ranks_*.
#include "engine/ranks/public.h"

#include <stdlib.h>

#include "base/public.h"
#include "ranks/mpi.h"
#include "engine/ranks/worker.h"
#include "engine/ranks/protocol.h"

struct nibble_ranks *nibble_ranks_open(const char *flags, struct nibble_error *error)
{
    struct nibble_ranks *ranks = memory_new(1, sizeof *ranks);
    struct error err;
    ranks->group.ranks = ranks_open(&err);
    if (ranks->group.ranks && group_compare(&ranks->group, flags, &err))
        return ranks;
    public_error(error, &err);
    if (ranks->group.ranks)
        ranks_close(ranks->group.ranks);
    free(ranks);
    return NULL;
}

bool nibble_ranks_can_launch(struct nibble_error *error)
{
    char path[MPI_PATH_MAX];
    struct error err;
    bool module = mpi_load(path, &err), launcher = mpi_find_launcher(path);
    static const char no_launcher[] = "mpirun, which starts the other processes, is not on the PATH";
    if (!launcher && module)
        fail(&err, "%s; install MPI (on Debian: openmpi-bin)", no_launcher);
    else if (!launcher)
        fail_within(&err, "%s, and the module that they speak through is missing, too", no_launcher);
    if (launcher && module)
        return true;
    public_error(error, &err);
    return false;
}

int nibble_ranks_rank(const struct nibble_ranks *ranks) { return group_rank(&ranks->group); }

int nibble_ranks_size(const struct nibble_ranks *ranks) { return group_size(&ranks->group); }

int nibble_ranks_launched(void) { return ranks_launched(); }

int nibble_ranks_launched_rank(void) { return mpi_launched_rank(); }

int nibble_ranks_launched_here(void) { return mpi_launched_here(); }

const char *nibble_ranks_lost(const struct nibble_ranks *ranks) { return ranks_lost(ranks->group.ranks); }

int nibble_ranks_lost_fd(const struct nibble_ranks *ranks) { return ranks_lost_fd(ranks->group.ranks); }

bool nibble_ranks_speaks(const struct nibble_ranks *ranks) { return ranks_speaks(ranks->group.ranks); }

bool nibble_ranks_follow(struct nibble_ranks *ranks, struct nibble_error *error)
{
    struct error err;
    bool ok = follow(&ranks->group, &err);
    if (!ok)
        public_error(error, &err);
    return ok;
}

void nibble_ranks_close(struct nibble_ranks *ranks)
{
    if (!ranks)
        return;
    struct strbuf message = { 0 };
    struct error ignored; // who is gone needs not be told
    protocol_write_head(&message, PROTOCOL_END, 0);
    if (!group_rank(&ranks->group))
        ranks_tell(ranks->group.ranks, message.data, message.len, &ignored);
    strbuf_free(&message);
    ranks_close(ranks->group.ranks);
    free(ranks);
}
