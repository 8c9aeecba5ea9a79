// SPDX-License-Identifier: Apache-2.0
// cli/ranks.h: commands that several processes carry out together. A command that is asked for this starts mpirun,
// which starts the same command line in each of them; or somebody's own mpirun or srun did. Rank 0 then goes on as if
// it were alone, the others follow it (nibble_ranks_follow) and end with it.
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "nibble.h"

// First of all in such a command. -1: go on, alone (*ranks is NULL) or as rank 0, which closes them in the end.
// Otherwise the exit status: a follower's life is over, or the ranks did not come together.
int ranks_begin(struct nibble_ranks **ranks);

// With the number that was asked for (0: none was). -1: go on. Otherwise the exit status: they are not as many, or this
// process has started them itself and they have ended.
int ranks_settle(struct nibble_ranks *ranks, long long wanted, bool json);

#endif
