// SPDX-License-Identifier: Apache-2.0
#include "ranks/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "nibble-mpi.so";

// Searched in this order, relative to the program's folder.
static const char *const folders[] = { "", "/../lib/nibble" };

static const struct mpi_module *load(const char *path, struct error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); // MPI libraries load plugins that need its symbols
    if (!library)
        return fail(err,
                    "the MPI module does not load (%s); install the MPI it was built with (on Debian: "
                    "openmpi-bin)",
                    dlerror()),
               NULL;
    const struct mpi_module *module = dlsym(library, MPI_MODULE_TABLE);
    if (!module || module->version != MPI_MODULE_VERSION)
        return fail(err, "%s is not the MPI module of this build; install both together", path), NULL;
    return module;
}

const struct mpi_module *mpi_load(char path[MPI_PATH_MAX], struct error *err)
{
    char program[MPI_PATH_MAX / 2];
    const char *given = getenv("NIBBLE_MPI");
    if (given && *given) {
        snprintf(path, MPI_PATH_MAX, "%s", given);
        return load(path, err);
    }
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    program[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(program, '/');
    for (size_t i = 0; i < sizeof folders / sizeof *folders && slash; i++) {
        snprintf(path, MPI_PATH_MAX, "%.*s%s/%s", (int)(slash - program), program, folders[i], file_name);
        if (access(path, F_OK) == 0)
            return load(path, err);
    }
    path[0] = '\0';
    return fail(err,
                "there is no %s beside the program; install MPI (on Debian: openmpi-bin libopenmpi-dev) and build "
                "nibble again, or name the module in $NIBBLE_MPI",
                file_name),
           NULL;
}

// ---- the launcher --------------------------------------------------------------------------------------------------

// Environment variables of launchers: Open MPI's mpirun, PMI (MPICH and relatives), Slurm's srun.
static const struct launcher {
    const char *size, *rank, *here;
} launchers[] = {
    { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK" },
    { "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID" },
    { "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID" },
};

bool mpi_find_launcher(char path[MPI_PATH_MAX])
{
    const char *at = getenv("PATH");
    while (at && *at) {
        int len = (int)strcspn(at, ":");
        if (snprintf(path, MPI_PATH_MAX, "%.*s/mpirun", len, at) < MPI_PATH_MAX && access(path, X_OK) == 0)
            return true;
        at += len + (at[len] == ':');
    }
    return false;
}

static int number_in(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    char *end;
    long number = text ? strtol(text, &end, 10) : 0;
    return text && end != text && !*end && number >= 0 && number <= INT_MAX ? (int)number : otherwise;
}

// NULL if not started by a launcher.
static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (number_in(launchers[i].size, 1) > 1)
            return &launchers[i];
    return NULL;
}

int mpi_launched_size(void)
{
    const struct launcher *launcher = find_launcher();
    return launcher ? number_in(launcher->size, 1) : 1;
}

int mpi_launched_rank(void)
{
    const struct launcher *launcher = find_launcher();
    return launcher ? number_in(launcher->rank, 0) : 0;
}

int mpi_launched_here(void)
{
    const struct launcher *launcher = find_launcher();
    return launcher ? number_in(launcher->here, 0) : 0;
}
