// SPDX-License-Identifier: Apache-2.0
// cli/ranks.h: tensor parallelism of commands. A command with --tensor-parallel-size starts mpirun,
// which starts the same command line in each of them; or the user's own mpirun or srun did. Rank 0 then goes on as if
// it were alone, the others follow it (nibble_ranks_work) and end with it.
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "nibble.h"

// First of all in such a command. -1: go on, alone (*ranks is NULL) or as rank 0, which closes them in the end.
// Otherwise the exit status: a worker rank has ended, or the ranks did not come together.
int ranks_begin(struct nibble_ranks **ranks);

// When options.tensor_parallel is known (0: it was not given). -1: go on. Otherwise the exit status: options.ranks are
// not as many, or this process has started them itself and they have ended.
int ranks_settle(const struct nibble_options *options, bool json);

#endif
