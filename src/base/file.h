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
    int fd;                  // stays this file if the path is replaced; 0 or less: not open
    struct timespec changed; // modification time at opening
};

bool file_open(struct file *file, const char *path, struct error *err);
void file_close(struct file *file); // does nothing for a zeroed or closed one

// False if the file's size or modification time changed since file_open. A file that was replaced by rename() passes:
// the mapping still holds the old content.
bool file_check(const struct file *file, struct error *err);

// Replaces the first bytes of the mapping by a private copy at the same address, so that writes to the file cannot
// change them.
bool file_keep(struct file *file, size_t bytes, struct error *err);

// Drops the whole pages within a part of the content from memory (MADV_DONTNEED); a later read loads them again.
void file_release(const struct file *file, struct bytes part);

bool file_exists(const char *path); // true for a regular file, after following links

// Reads the beginning of a small file, such as one under /proc, as a terminated string; "" if the file cannot be read.
// Allocates nothing, so that it works when memory is short.
void file_read_start(const char *path, char *out, size_t size);

// pwrite of all bytes; `path` is for the error message.
bool file_write_at(int fd, uint64_t offset, const void *data, size_t bytes, const char *path, struct error *err);

// A path in the cache folder: $NIBBLE_CACHE, else nibble in $XDG_CACHE_HOME or ~/.cache. On the heap; NULL if none of
// these is set.
char *file_cache_path(const char *name);

// Replaces a file atomically (written beside it, then renamed); makes missing parent folders.
bool file_replace(const char *path, struct bytes content, struct error *err);

// Writes a new file and fsyncs it; fails if the path exists.
bool file_save(const char *path, struct bytes content, struct error *err);

#endif
