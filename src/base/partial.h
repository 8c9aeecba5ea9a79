// SPDX-License-Identifier: Apache-2.0
// base/partial.h: a file or a folder while it is being written, under a name of its own beside its place
// (PATH.partial-XXXXXX, new and not to be guessed). It is locked (flock) for as long as its process lives: what is
// there and is not locked was left by one that was killed, and the next process that writes to the same place removes
// it.
#ifndef BASE_PARTIAL_H
#define BASE_PARTIAL_H

#include "base/error.h"

enum partial_kind { PARTIAL_FILE, PARTIAL_FOLDER };

struct partial {
    char *path; // heap; NULL: there is none
    int fd;     // of the file, to be written, or of the folder
    enum partial_kind kind;
};

bool partial_begin(struct partial *partial, enum partial_kind kind, const char *path, struct error *err);

// It gets the name that it was begun for; a file takes the place of one that is there. On false it has been given up.
bool partial_commit(struct partial *partial, const char *path, struct error *err);

void partial_give_up(struct partial *partial); // removes it, with the files of a folder; fine if there is none

#endif
