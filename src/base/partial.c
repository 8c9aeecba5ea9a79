// SPDX-License-Identifier: Apache-2.0
#include "base/partial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"

#define SUFFIX ".partial-XXXXXX"

enum { ATTEMPTS = 16 };

static bool cannot_make(const char *path, struct error *err)
{
    return fail(err, "%s: cannot be made (%s)", path, strerror(errno));
}

// ---- removing ------------------------------------------------------------------------------------------------------

static void remove_files(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
}

static bool remove_path(const char *path, enum partial_kind kind)
{
    if (kind == PARTIAL_FILE)
        return unlink(path) == 0;
    remove_files(path);
    return rmdir(path) == 0;
}

// Removes a path if this user owns it and no process holds its lock. Links are left alone: their target is not ours.
static void remove_abandoned(const char *path, enum partial_kind kind)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    bool ours = fstat(fd, &info) == 0 && info.st_uid == geteuid()
        && (kind == PARTIAL_FILE ? S_ISREG(info.st_mode) : S_ISDIR(info.st_mode));
    if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_path(path, kind);
    close(fd);
}

// Removes partial outputs that killed processes left for the same path.
static void clean_up(const char *path, size_t len, enum partial_kind kind)
{
    struct strbuf above = { 0 }, stem = { 0 };
    const char *slash = memrchr(path, '/', len);
    size_t before = slash ? (size_t)(slash + 1 - path) : 0;
    strbuf_add(&above, path, before);
    strbuf_add(&stem, path + before, len - before);
    strbuf_add_text(&stem, SUFFIX);
    size_t fixed = stem.len - strlen("XXXXXX");
    DIR *folder = opendir(before ? above.data : ".");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strlen(entry->d_name) != stem.len || memcmp(entry->d_name, stem.data, fixed))
            continue;
        strbuf_add_text(&above, entry->d_name);
        remove_abandoned(above.data, kind);
        above.data[above.len = before] = '\0';
    }
    if (folder)
        closedir(folder);
    strbuf_free(&above);
    strbuf_free(&stem);
}

// ---- making --------------------------------------------------------------------------------------------------------

static int make(char *name, enum partial_kind kind)
{
    if (kind == PARTIAL_FILE)
        return mkostemp(name, O_CLOEXEC);
    return mkdtemp(name) ? open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

// True if the lock was taken and the file still exists: another process may have removed it as abandoned between
// creation and lock. On a file system without locks nothing is ever removed as abandoned.
static bool is_held(int fd)
{
    struct stat info;
    return (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && fstat(fd, &info) == 0 && info.st_nlink > 0;
}

bool partial_begin(struct partial *partial, enum partial_kind kind, const char *path, struct error *err)
{
    struct strbuf name = { 0 };
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    *partial = (struct partial){ .kind = kind };
    clean_up(path, len, kind);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        name.len = 0;
        strbuf_add(&name, path, len);
        strbuf_add_text(&name, SUFFIX);
        int fd = make(name.data, kind);
        if (fd < 0)
            break;
        if (is_held(fd)) {
            partial->path = name.data;
            partial->fd = fd;
            return true;
        }
        close(fd);
    }
    strbuf_free(&name);
    return cannot_make(path, err);
}

// ---- the end -------------------------------------------------------------------------------------------------------

static void let_go(struct partial *partial)
{
    close(partial->fd);
    free(partial->path);
    *partial = (struct partial){ 0 };
}

// mkstemp and mkdtemp create with mode 0600 and 0700; this sets the mode that umask would give.
static void open_to_others(const struct partial *partial)
{
    mode_t mask = umask(0);
    umask(mask);
    fchmod(partial->fd, (partial->kind == PARTIAL_FILE ? 0666 : 0777) & ~mask);
}

static bool rename_to(const struct partial *partial, const char *path)
{
    if (partial->kind == PARTIAL_FILE)
        return rename(partial->path, path) == 0;
    return renameat2(AT_FDCWD, partial->path, AT_FDCWD, path, RENAME_NOREPLACE) == 0
        || ((errno == EINVAL || errno == ENOSYS) && rename(partial->path, path) == 0);
}

bool partial_commit(struct partial *partial, const char *path, struct error *err)
{
    open_to_others(partial);
    bool ok = (fsync(partial->fd) == 0 && rename_to(partial, path)) || cannot_make(path, err);
    if (ok)
        let_go(partial);
    else
        partial_give_up(partial);
    return ok;
}

void partial_give_up(struct partial *partial)
{
    if (!partial->path)
        return;
    if (!remove_path(partial->path, partial->kind))
        fprintf(stderr, "nibble: %s is not whole and could not be removed (%s)\n", partial->path, strerror(errno));
    let_go(partial);
}
