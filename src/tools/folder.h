// SPDX-License-Identifier: Apache-2.0
// tools/folder.h: a folder that is there whole or not at all (base/partial.h).
#ifndef TOOLS_FOLDER_H
#define TOOLS_FOLDER_H

#include "base/partial.h"
#include "nibble.h"

struct folder {
    const char *path;       // where it is going to be; borrowed
    struct partial partial; // where it is while it is being filled
};

bool folder_begin(struct folder *folder, const char *path, struct error *err); // refuses a path that is there
bool folder_commit(struct folder *folder, struct error *err);                  // on false it has been given up
void folder_give_up(struct folder *folder);

// Counts the files in a folder and their bytes. False: it cannot be read.
bool folder_measure(const char *path, size_t *bytes, int *files, struct error *err);

#endif
