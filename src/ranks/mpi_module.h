// SPDX-License-Identifier: Apache-2.0
// ranks/mpi_module.h: nibble's interface to MPI: the function table that nibble-mpi.so exports. The module is compiled
// against an MPI's header and library, so that nibble itself does not depend on MPI. It includes nothing else of
// nibble:
//     mpicc -shared -fPIC -Isrc src/ranks/mpi_module.c -o nibble-mpi.so
// Only open and close block. The others start an operation, which `test` advances until it is complete; one operation
// is pending at a time. Calls may come from any thread, one at a time; open and close from the same thread.
#ifndef RANKS_MPI_MODULE_H
#define RANKS_MPI_MODULE_H

#include <stdbool.h>
#include <stddef.h>

enum { MPI_MODULE_VERSION = 1, MPI_TEXT_MAX = 256 };

#define MPI_MODULE_TABLE "nibble_mpi_module"

struct mpi; // private to the module

struct mpi_world {
    int rank, size;
    int neighbours; // ranks on this host, including this one
};

struct mpi_module {
    int version;                  // MPI_MODULE_VERSION
    void (*library)(char *words); // MPI's name and version, up to MPI_TEXT_MAX bytes; may be called before open

    // On NULL, or false below, `trouble` is MPI's error message of up to MPI_TEXT_MAX bytes.
    struct mpi *(*open)(struct mpi_world *world, char *trouble);
    void (*close)(struct mpi *mpi); // a barrier

    // Starts an all-gather: rank r's `bytes` bytes go to `all` + r * stride on every rank; `mine` may be in place. Both
    // buffers must stay until completion.
    bool (*all_gather)(struct mpi *mpi, const void *mine, void *all, size_t bytes, size_t stride, char *trouble);
    // Starts a broadcast: a message to every other rank.
    bool (*broadcast)(struct mpi *mpi, const void *message, size_t bytes, char *trouble);
    // Probes for a message from rank 0 and its length; receive starts to receive it.
    bool (*probe)(struct mpi *mpi, bool *there, size_t *bytes, char *trouble);
    bool (*receive)(struct mpi *mpi, void *message, size_t bytes, char *trouble);

    bool (*test)(struct mpi *mpi, bool *done, char *trouble);
    int (*first_pending)(struct mpi *mpi); // the first rank that the pending operation waits for, or -1
};

#endif
