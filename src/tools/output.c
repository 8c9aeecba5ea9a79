// SPDX-License-Identifier: Apache-2.0
#include "tools/output.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/strbuf.h"

extern const char report_html[]; // web/report.html, put into the program by the build

// ---- signals ------------------------------------------------------------------------------------------------------

static const int deadly[] = { SIGINT, SIGTERM, SIGHUP };
static const char *volatile unfinished; // one at a time

static void on_signal(int number)
{
    if (unfinished)
        unlink(unfinished);
    raise(number); // SA_RESETHAND: this time it does what it does by itself
}

// Has signals that would end the process remove the file first. Signals that a command handles are left to it.
static void remove_on_signals(const char *path)
{
    const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };
    unfinished = path;
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        struct sigaction now;
        if (sigaction(deadly[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(deadly[i], &action, NULL);
    }
}

// Begins it with those signals held back, so that none comes between the file and its handler.
static bool begin(struct output_file *file, struct error *err)
{
    sigset_t held, before;
    sigemptyset(&held);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        sigaddset(&held, deadly[i]);
    pthread_sigmask(SIG_BLOCK, &held, &before);
    bool ok = partial_begin(&file->partial, PARTIAL_FILE, file->path, err);
    if (ok)
        remove_on_signals(file->partial.path);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

// ---- the file -----------------------------------------------------------------------------------------------------

bool output_file_open(struct output_file *file, const char *path, const char *flag, struct error *err)
{
    struct stat found;
    *file = (struct output_file){ .path = path };
    if (path && stat(path, &found) == 0 && !S_ISREG(found.st_mode))
        return fail(err, "%s: is there and no ordinary file; give another name to %s", path, flag);
    return !path || begin(file, err);
}

bool output_file_finish(struct output_file *file, const char *data, size_t len, struct error *err)
{
    if (!file->path)
        return true;
    unfinished = NULL;
    return file_write_at(file->partial.fd, 0, data, len, file->path, err)
        && partial_commit(&file->partial, file->path, err);
}

// Within a script element only '<' can begin a tag or a comment, and in JSON it occurs in strings alone.
static void add_json(struct strbuf *out, const char *json)
{
    for (; *json; json++)
        if (*json == '<')
            strbuf_add_text(out, "\\u003c");
        else
            strbuf_add_byte(out, *json);
}

bool output_file_finish_page(struct output_file *file, const char *json, struct error *err)
{
    static const char slot[] = "@data";
    const char *at = strstr(report_html, slot);
    assert(at);
    struct strbuf page = { 0 };
    strbuf_add(&page, report_html, (size_t)(at - report_html));
    add_json(&page, json);
    strbuf_add_text(&page, at + strlen(slot));
    bool ok = output_file_finish(file, page.data, page.len, err);
    strbuf_free(&page);
    return ok;
}

void output_file_close(struct output_file *file)
{
    unfinished = NULL;
    partial_give_up(&file->partial);
}

// ---- folders ------------------------------------------------------------------------------------------------------

bool output_folder_begin(struct output_folder *folder, const char *path, struct error *err)
{
    struct stat info;
    *folder = (struct output_folder){ .path = path };
    if (lstat(path, &info) == 0)
        return fail(err, "%s is there already; remove it, or give another name", path);
    return partial_begin(&folder->partial, PARTIAL_FOLDER, path, err);
}

// Syncs the parent folder, so that the name survives a crash; failure is ignored.
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

bool output_folder_commit(struct output_folder *folder, struct error *err)
{
    if (!partial_commit(&folder->partial, folder->path, err))
        return false;
    sync_name(folder->path);
    return true;
}

void output_folder_give_up(struct output_folder *folder) { partial_give_up(&folder->partial); }

bool output_folder_measure(const char *path, size_t *bytes, int *files, struct error *err)
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
