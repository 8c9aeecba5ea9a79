// SPDX-License-Identifier: Apache-2.0
// ranks/mpi.h: finds MPI: the launcher's environment, and the module that wraps MPI's library. The module is loaded on
// demand, from $NIBBLE_MPI or else from beside the program or ../lib/nibble.
#ifndef RANKS_MPI_H
#define RANKS_MPI_H

#include "base/error.h"
#include "ranks/mpi_module.h"

enum { MPI_PATH_MAX = 4096 };

// Loads the module; it stays loaded. NULL if it is missing or from another build. `path` is where it was found, or "".
const struct mpi_module *mpi_load(char path[MPI_PATH_MAX], struct error *err);

// Finds mpirun in $PATH.
bool mpi_find_launcher(char path[MPI_PATH_MAX]);

int mpi_launched_size(void); // number of processes, from the launcher's environment; 1 without one
int mpi_launched_rank(void); // this process's rank
int mpi_launched_here(void); // this process's rank on its host

#endif
