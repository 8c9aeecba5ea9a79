// SPDX-License-Identifier: Apache-2.0
#include "tools/output_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"

// ---- signals ------------------------------------------------------------------------------------------------------

static const int deadly[] = { SIGINT, SIGTERM, SIGHUP };
static const char *volatile unfinished; // one at a time

static void on_signal(int number)
{
    if (unfinished)
        unlink(unfinished);
    raise(number); // SA_RESETHAND: this time it does what it does by itself
}

// A signal that would end the process removes the file first. One that a command handles is left to it.
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

void output_file_close(struct output_file *file)
{
    unfinished = NULL;
    partial_give_up(&file->partial);
}
