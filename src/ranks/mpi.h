// SPDX-License-Identifier: Apache-2.0
// ranks/mpi.h: MPI as it is found: the launcher's environment, and the module that speaks to its library. The module
// is looked for at $NIBBLE_MPI or, where that is not set, beside the program and in ../lib/nibble. Nothing is loaded
// before it is asked for.
#ifndef RANKS_MPI_H
#define RANKS_MPI_H

#include "base/error.h"
#include "ranks/mpi_module.h"

enum { MPI_PATH_MAX = 4096 };

// Stays loaded. NULL: there is none, or not for this build; `path` is where it was found, else "".
const struct mpi_module *mpi_load(char path[MPI_PATH_MAX], struct error *err);

// mpirun as $PATH has it; false: it is not there.
bool mpi_find_launcher(char path[MPI_PATH_MAX]);

int mpi_launched_size(void); // how many processes the launcher started together, by its environment; 1: none did
int mpi_launched_rank(void); // which of them this is
int mpi_launched_here(void); // and which of those on this host

#endif
