// SPDX-License-Identifier: Apache-2.0
// ranks/mpi_module.h: what nibble asks of MPI, as the one table that nibble-mpi.so exports. The module is compiled
// against an MPI's own header and library, so that the program itself needs none; it includes nothing else of nibble:
//     mpicc -shared -fPIC -Isrc src/mpi/module.c -o nibble-mpi.so
// Calls never wait, except open and close: what they begin is advanced by `test` until it is done. One thing is under
// way at a time. Calls may come from any thread, one at a time; open and close from the same one.
#ifndef RANKS_MPI_MODULE_H
#define RANKS_MPI_MODULE_H

#include <stdbool.h>
#include <stddef.h>

enum { MPI_MODULE_VERSION = 1, MPI_WORDS_MAX = 256 };

#define MPI_MODULE_TABLE "nibble_mpi_module"

struct mpi; // the module's own

struct mpi_world {
    int rank, size;
    int neighbours; // ranks on this host, this one too
};

struct mpi_module {
    int version;                  // MPI_MODULE_VERSION
    void (*library)(char *words); // which MPI this is, up to MPI_WORDS_MAX bytes; may be asked before open

    // NULL: trouble, MPI's own sentence of up to MPI_WORDS_MAX bytes; below as well, where false is returned.
    struct mpi *(*open)(struct mpi_world *world, char *trouble);
    void (*close)(struct mpi *mpi); // waits for all ranks to do the same

    // Begins: every rank gives `bytes` bytes, those of rank r go to `all` + r * stride; `mine` may be there already.
    // Both stay where they are until it is done.
    bool (*gather)(struct mpi *mpi, const void *mine, void *all, size_t bytes, size_t stride, char *trouble);
    // Begins: a message to every other rank.
    bool (*tell)(struct mpi *mpi, const void *message, size_t bytes, char *trouble);
    // Whether a message from rank 0 is there, and how long it is; then begins to take it.
    bool (*heard)(struct mpi *mpi, bool *there, size_t *bytes, char *trouble);
    bool (*hear)(struct mpi *mpi, void *message, size_t bytes, char *trouble);

    bool (*test)(struct mpi *mpi, bool *done, char *trouble);
    int (*missing)(struct mpi *mpi); // the first rank that what is under way waits for; -1: none
};

#endif
