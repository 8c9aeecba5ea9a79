// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/partial.h"

static bool map_content(struct file *file, const char *path, struct error *err)
{
    struct stat info;
    if (fstat(file->fd, &info) < 0)
        return fail(err, "%s: cannot be examined (%s)", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fail(err, "%s: not a regular file", path);
    size_t size = (size_t)info.st_size;
    file->changed = info.st_mtim;
    if (!size)
        return true;
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, file->fd, 0);
    if (data == MAP_FAILED)
        return fail(err, "%s: cannot be mapped (%s)", path, strerror(errno));
    file->content = (struct bytes){ data, size };
    file->mapping = mapping_add(file->content, path);
    return true;
}

bool file_open(struct file *file, const char *path, struct error *err)
{
    *file = (struct file){ 0 };
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe in place of the file must not hang us
    if (file->fd < 0)
        return fail(err, "%s: cannot be opened (%s)", path, strerror(errno));
    bool ok = map_content(file, path, err);
    if (!ok)
        file_close(file);
    return ok;
}

void file_close(struct file *file)
{
    mapping_remove(file->mapping);
    if (file->content.len)
        munmap((void *)file->content.data, file->content.len);
    if (file->fd > 0)
        close(file->fd);
    *file = (struct file){ 0 };
}

bool file_check(const struct file *file, struct error *err)
{
    struct stat now;
    const char *path = file->mapping ? mapping_path(file->mapping) : "an empty file";
    if (fstat(file->fd, &now) < 0)
        return fail(err, "%s: cannot be examined any more (%s)", path, strerror(errno));
    if ((size_t)now.st_size != file->content.len)
        return fail(err, "%s: had %zu bytes when it was opened and has %zu now; restore the file and start again", path,
                    file->content.len, (size_t)now.st_size);
    if (now.st_mtim.tv_sec != file->changed.tv_sec || now.st_mtim.tv_nsec != file->changed.tv_nsec)
        return fail(err,
                    "%s: was written to while it was in use; start again, and next time put a new file in its "
                    "place by renaming it",
                    path);
    if (file->mapping && mapping_is_lost(file->mapping))
        return fail(err, "%s: cannot be read any more; restore the file and start again", path);
    return true;
}

bool file_keep(struct file *file, size_t bytes, struct error *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded = (bytes + page - 1) / page * page;
    size_t kept = rounded < file->content.len ? rounded : file->content.len;
    if (!kept)
        return true;
    char *copy = mmap(NULL, kept, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return fail(err, "%s: there is no memory for its %zu first bytes", mapping_path(file->mapping), kept);
    memcpy(copy, file->content.data, kept);
    mprotect(copy, kept, PROT_READ);
    if (mremap(copy, kept, kept, MREMAP_MAYMOVE | MREMAP_FIXED, file->content.data) == MAP_FAILED) {
        munmap(copy, kept);
        return fail(err, "%s: its first bytes cannot be kept (%s)", mapping_path(file->mapping), strerror(errno));
    }
    return true;
}

void file_release(const struct file *file, struct bytes part)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)part.data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)part.data + part.len) / page * page;
    assert(part.data >= file->content.data && part.len <= file->content.len);
    if (first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

void file_read_start(const char *path, char *out, size_t size)
{
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got = 1; fd >= 0 && got > 0 && len < size - 1; len += got > 0 ? (size_t)got : 0)
        got = read(fd, out + len, size - 1 - len);
    out[len] = '\0';
    if (fd >= 0)
        close(fd);
}

bool file_write_at(int fd, uint64_t offset, const void *data, size_t bytes, const char *path, struct error *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t written = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (written < 0 && errno != EINTR)
            return fail(err, "%s: cannot be written (%s)", path, strerror(errno));
        done += written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool file_save(const char *path, struct bytes content, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(err, "%s: cannot be made (%s)", path, strerror(errno));
    bool ok = file_write_at(fd, 0, content.data, content.len, path, err);
    if (ok && fsync(fd) < 0)
        ok = fail(err, "%s: cannot be written (%s)", path, strerror(errno));
    close(fd);
    return ok;
}

static bool is_set(const char *text) { return text && *text; }

char *file_cache_path(const char *name)
{
    const char *own = getenv("NIBBLE_CACHE"), *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *above = is_set(own) ? own : is_set(base) ? base : home;
    const char *folder = is_set(own) ? "" : is_set(base) ? "/nibble" : "/.cache/nibble";
    if (!is_set(above))
        return NULL;
    size_t size = strlen(above) + strlen(folder) + strlen(name) + 2;
    char *path = memory_new(size, 1);
    snprintf(path, size, "%s%s/%s", above, folder, name);
    return path;
}

// mkdir -p of the path's parent folders.
static bool make_folders(char *path, struct error *err)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool there = mkdir(path, 0777) == 0 || errno == EEXIST;
        if (!there)
            fail(err, "%s: cannot be made (%s)", path, strerror(errno));
        *slash = '/';
        if (!there)
            return false;
    }
    return true;
}

bool file_replace(const char *path, struct bytes content, struct error *err)
{
    struct partial partial = { 0 };
    char *folders = memory_text(path);
    bool ok = make_folders(folders, err) && partial_begin(&partial, PARTIAL_FILE, path, err)
        && file_write_at(partial.fd, 0, content.data, content.len, path, err) && partial_commit(&partial, path, err);
    partial_give_up(&partial);
    free(folders);
    return ok;
}
