// SPDX-License-Identifier: Apache-2.0
// base/file.h: files as bytes, mapped read-only for as long as they are open.
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/bytes.h"
#include "base/error.h"

struct file {
    struct bytes content; // an empty file has no mapping and len 0
};

bool file_open(struct file *file, const char *path, struct error *err);
void file_close(struct file *file);

// Gives back the memory of the whole pages within a part of the content, which is read again when it is needed again.
void file_release(const struct file *file, struct bytes part);

bool file_exists(const char *path); // a regular file, links followed

#endif
