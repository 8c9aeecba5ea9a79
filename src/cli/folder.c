// SPDX-License-Identifier: Apache-2.0
#include "cli/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cli.h"

bool folder_begin(struct folder *folder, const char *path, struct nibble_error *error)
{
    struct stat info;
    struct strbuf name = { 0 };
    size_t len = strlen(path);
    *folder = (struct folder){ .path = path };
    if (lstat(path, &info) == 0)
        return cli_trouble(error, "%s is there already; remove it, or give another name", path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    strbuf_add(&name, path, len);
    strbuf_add_text(&name, ".partial-XXXXXX");
    if (!mkdtemp(name.data)) {
        cli_trouble(error, "%s: cannot be made (%s)", path, strerror(errno));
        strbuf_free(&name);
        return false;
    }
    folder->partial = name.data;
    return true;
}

static bool sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

// mkdtemp's folders are for their owner alone; this one is to be as any other.
static void open_to_others(const char *path)
{
    mode_t mask = umask(0);
    umask(mask);
    chmod(path, 0777 & ~mask);
}

bool folder_commit(struct folder *folder, struct nibble_error *error)
{
    open_to_others(folder->partial);
    bool ok = sync_path(folder->partial)
        && (renameat2(AT_FDCWD, folder->partial, AT_FDCWD, folder->path, RENAME_NOREPLACE) == 0
            || ((errno == EINVAL || errno == ENOSYS) && rename(folder->partial, folder->path) == 0));
    if (!ok) {
        cli_trouble(error, "%s: cannot be made (%s)", folder->path, strerror(errno));
        folder_give_up(folder);
        return false;
    }
    struct strbuf parent = { 0 };
    strbuf_add_format(&parent, "%s/..", folder->path);
    sync_path(parent.data); // the name itself; it is there even where a file system cannot promise that
    strbuf_free(&parent);
    free(folder->partial);
    folder->partial = NULL;
    return true;
}

// Calls `visit` with each file's path.
static void visit_files(const char *path, void (*visit)(void *context, const char *file), void *context)
{
    DIR *opened = opendir(path);
    for (struct dirent *entry; opened && (entry = readdir(opened));) {
        struct strbuf file = { 0 };
        strbuf_add_format(&file, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            visit(context, file.data);
        strbuf_free(&file);
    }
    if (opened)
        closedir(opened);
}

static void remove_file(void *context, const char *file)
{
    (void)context;
    unlink(file);
}

void folder_give_up(struct folder *folder)
{
    if (!folder->partial)
        return;
    visit_files(folder->partial, remove_file, NULL);
    if (rmdir(folder->partial) < 0)
        cli_say("nibble: %s is not whole and could not be removed (%s)\n", folder->partial, strerror(errno));
    free(folder->partial);
    folder->partial = NULL;
}

struct tally {
    size_t bytes;
    int files;
};

static void add_file(void *context, const char *file)
{
    struct tally *tally = context;
    struct stat info;
    if (stat(file, &info) == 0) {
        tally->bytes += (size_t)info.st_size;
        tally->files++;
    }
}

size_t folder_bytes(const char *path, int *files)
{
    struct tally tally = { 0 };
    visit_files(path, add_file, &tally);
    *files = tally.files;
    return tally.bytes;
}
