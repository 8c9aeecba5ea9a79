// SPDX-License-Identifier: Apache-2.0
#include "tools/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cli.h"

bool folder_begin(struct folder *folder, const char *path, struct error *err)
{
    struct stat info;
    *folder = (struct folder){ .path = path };
    if (lstat(path, &info) == 0)
        return fail(err, "%s is there already; remove it, or give another name", path);
    return partial_begin(&folder->partial, PARTIAL_FOLDER, path, err);
}

// The name itself; it is there even where a file system cannot promise that.
static void sync_name(const char *path)
{
    struct strbuf parent = { 0 };
    strbuf_add_format(&parent, "%s/..", path);
    int fd = open(parent.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    strbuf_free(&parent);
}

bool folder_commit(struct folder *folder, struct error *err)
{
    if (!partial_commit(&folder->partial, folder->path, err))
        return false;
    sync_name(folder->path);
    return true;
}

void folder_give_up(struct folder *folder) { partial_give_up(&folder->partial); }

bool folder_measure(const char *path, size_t *bytes, int *files, struct error *err)
{
    DIR *folder = opendir(path);
    *bytes = 0;
    *files = 0;
    if (!folder)
        return fail(err, "%s: cannot be read (%s)", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat info;
        if (entry->d_name[0] == '.' || fstatat(dirfd(folder), entry->d_name, &info, 0) < 0)
            continue;
        *bytes += (size_t)info.st_size;
        ++*files;
    }
    closedir(folder);
    return true;
}
