// SPDX-License-Identifier: Apache-2.0
// base/partial.h: atomic output: a file or folder is written under a temporary name beside its place
// (PATH.partial-XXXXXX) and renamed when it is complete. It is locked (flock) while its process lives. An unlocked one
// was left by a killed process; the next process that writes the same path removes it.
#ifndef BASE_PARTIAL_H
#define BASE_PARTIAL_H

#include "base/error.h"

enum partial_kind { PARTIAL_FILE, PARTIAL_FOLDER };

struct partial {
    char *path; // on the heap; NULL if unused
    int fd;     // open for writing, or the folder's
    enum partial_kind kind;
};

bool partial_begin(struct partial *partial, enum partial_kind kind, const char *path, struct error *err);

// Renames it to its final path; a file replaces an existing one. On failure it is removed.
bool partial_commit(struct partial *partial, const char *path, struct error *err);

void partial_give_up(struct partial *partial); // removes it, with a folder's files; does nothing if there is none

#endif
