// SPDX-License-Identifier: Apache-2.0
// base/file.h: files as bytes, mapped read-only for as long as they are open.
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <time.h>

#include "base/bytes.h"
#include "base/error.h"

struct mapping;

struct file {
    struct bytes content;    // an empty file has no mapping and len 0
    struct mapping *mapping; // NULL: empty
    int fd;                  // of this very file, whatever its path leads to now; 0 or less: not open
    struct timespec changed; // when it last was, as of opening
};

bool file_open(struct file *file, const char *path, struct error *err);
void file_close(struct file *file); // a zeroed or closed one is fine

// Whether the file still has the size and the time of its last change that it had when it was opened. A file that
// another took the place of by rename() has them: its content is there for as long as it is mapped.
bool file_check(const struct file *file, struct error *err);

// The first bytes become a copy of our own in the same place, out of reach of a process that changes the file.
bool file_keep(struct file *file, size_t bytes, struct error *err);

// Gives back the memory of the whole pages within a part of the content, which is read again when it is needed again.
void file_release(const struct file *file, struct bytes part);

bool file_exists(const char *path); // a regular file, links followed

// The beginning of a small file, such as the kernel's own under /proc, terminated; "" where it cannot be read. Nothing
// is allocated, so that it is there when memory is short.
void file_read_start(const char *path, char *out, size_t size);

// All of it, at that place of an open file; `path` is for the sentence.
bool file_write_at(int fd, uint64_t offset, const void *data, size_t bytes, const char *path, struct error *err);

// A file's path in the folder for what can be made again: $NIBBLE_CACHE, else nibble in $XDG_CACHE_HOME or ~/.cache. On
// the heap; NULL: none of these is set.
char *file_cache_path(const char *name);

// The content takes the place of what is there, whole or not at all; folders above it are made.
bool file_replace(const char *path, struct bytes content, struct error *err);

// A new file with this content, which is on the disk when this returns true.
bool file_save(const char *path, struct bytes content, struct error *err);

#endif
