// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096 };

// Folders that the loader does not search: beside the program, the CUDA toolkit's, Python's packages.
static const char *const library_folders[] = {
    "%s/../lib",
    "%s",
    "/usr/local/cuda/lib64",
    "/opt/cuda/lib64",
    "$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/*/lib",
    "$HOME/.local/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
};

// Expands "%s" to the program's folder and a leading "$NAME" from the environment. False if that is not known.
static bool fill_in(const char *pattern, char *out, size_t size)
{
    char name[32] = "", program[PATH_BYTES_MAX / 2];
    const char *first = "", *rest = pattern;
    if (pattern[0] == '$') {
        rest = strchr(pattern, '/');
        snprintf(name, sizeof name, "%.*s", (int)(rest - pattern - 1), pattern + 1);
        first = getenv(name);
    } else if (!strncmp(pattern, "%s", 2)) {
        ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
        program[len > 0 ? len : 0] = '\0';
        char *slash = strrchr(program, '/');
        rest = pattern + 2;
        first = slash ? (*slash = '\0', program) : NULL;
    }
    return first && (size_t)snprintf(out, size, "%s%s", first, rest) < size;
}

static void *open_in(const char *pattern, const char *name)
{
    char folder[PATH_BYTES_MAX], path[PATH_BYTES_MAX + 32];
    void *library = NULL;
    glob_t found;
    if (!fill_in(pattern, folder, sizeof folder))
        return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!glob(path, 0, NULL, &found))
        for (size_t i = 0; i < found.gl_pathc && !library; i++)
            library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

void *cuda_library_open(const char *const *names)
{
    void *library = NULL;
    for (; *names && !library; names++) {
        library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        for (size_t i = 0; i < sizeof library_folders / sizeof *library_folders && !library; i++)
            library = open_in(library_folders[i], *names);
    }
    return library;
}

const char *cuda_library_bind(void *library, const struct library_call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(*calls[i].slot = dlsym(library, calls[i].symbol)))
            return calls[i].symbol;
    return NULL;
}
