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

bool folder_begin(struct folder *folder, const char *path, struct nibble_error *error); // refuses a path that is there
bool folder_commit(struct folder *folder, struct nibble_error *error);                  // on false it has been given up
void folder_give_up(struct folder *folder);

// Of the files in a folder, which holds no others. False: it cannot be read.
bool folder_measure(const char *path, size_t *bytes, int *files, struct nibble_error *error);

#endif
