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

#include "base/memory.h"

static bool map_content(struct file *file, int fd, const char *path, struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return fail(err, "%s: cannot be examined (%s)", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fail(err, "%s: not a regular file", path);
    size_t size = (size_t)info.st_size;
    if (!size)
        return true;
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return fail(err, "%s: cannot be mapped (%s)", path, strerror(errno));
    file->content = (struct bytes){ data, size };
    return true;
}

bool file_open(struct file *file, const char *path, struct error *err)
{
    *file = (struct file){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe in place of the file must not hang us
    if (fd < 0)
        return fail(err, "%s: cannot be opened (%s)", path, strerror(errno));
    bool ok = map_content(file, fd, path, err);
    close(fd);
    return ok;
}

void file_close(struct file *file)
{
    if (file->content.len)
        munmap((void *)file->content.data, file->content.len);
    *file = (struct file){ 0 };
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

static bool is_set(const char *text)
{
    return text && *text;
}

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

// Every folder above a path.
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
    size_t size = strlen(path) + 32;
    char *unfinished = memory_new(size, 1);
    snprintf(unfinished, size, "%s.%ld", path, (long)getpid());
    bool ok = make_folders(unfinished, err) && file_save(unfinished, content, err);
    if (ok && rename(unfinished, path) < 0)
        ok = fail(err, "%s: cannot be written (%s)", path, strerror(errno));
    if (!ok)
        unlink(unfinished);
    free(unfinished);
    return ok;
}
