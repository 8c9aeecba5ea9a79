// SPDX-License-Identifier: Apache-2.0
#include "cli/output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/cli.h"

static bool cannot_write(const struct output_file *file, struct nibble_error *error)
{
    return cli_trouble(error, "%s: cannot be written (%s)", file->path, strerror(errno));
}

bool output_file_open(struct output_file *file, const char *path, const char *flag, struct nibble_error *error)
{
    struct stat found;
    *file = (struct output_file){ .path = path };
    if (!path)
        return true;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode))
        return cli_trouble(error, "%s: is there and no ordinary file; give another name to %s", path, flag);
    size_t size = strlen(path) + sizeof ".XXXXXX";
    file->unfinished = memory_new(size, 1);
    snprintf(file->unfinished, size, "%s.XXXXXX", path);
    int fd = mkstemp(file->unfinished);
    if (fd < 0) {
        free(file->unfinished);
        file->unfinished = NULL;
        return cannot_write(file, error);
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    file->file = fdopen(fd, "w");
    return file->file || cannot_write(file, error);
}

bool output_file_finish(struct output_file *file, const char *data, size_t len, struct nibble_error *error)
{
    if (!file->path)
        return true;
    bool written = fwrite(data, 1, len, file->file) == len;
    written = fclose(file->file) == 0 && written;
    file->file = NULL;
    if (!written || rename(file->unfinished, file->path) < 0)
        return cannot_write(file, error);
    free(file->unfinished);
    file->unfinished = NULL;
    return true;
}

void output_file_close(struct output_file *file)
{
    if (file->file)
        fclose(file->file);
    if (file->unfinished)
        unlink(file->unfinished);
    free(file->unfinished);
}
