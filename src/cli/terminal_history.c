// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/strbuf.h"

enum { MESSAGES_MAX = 1000, MESSAGE_BYTES_MAX = 16 << 10, HISTORY_BYTES = 4096 };

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

// The model's name without folders; the parts of org/name are joined.
static void add_model(struct strbuf *path, const char *model)
{
    const char *name = model, *slash = strrchr(model, '/');
    while (slash && !slash[1] && slash > model) // "folder/"
        slash = memrchr(model, '/', (size_t)(slash - model));
    bool is_path = model[0] == '/' || model[0] == '.' || (slash && strchr(model, '/') != slash);
    if (slash && is_path)
        name = slash + 1;
    for (; *name; name++)
        strbuf_add_byte(path, *name == '/' ? '-' : *name);
}

// NULL without a home folder.
static char *find_path(const char *model)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct strbuf path = { 0 };
    if (state && *state)
        strbuf_add_text(&path, state);
    else if (home && *home)
        strbuf_add_format(&path, "%s/.local/state", home);
    else
        return NULL;
    strbuf_add_text(&path, "/nibble/chats/");
    add_model(&path, model);
    make_folders(path.data);
    return path.data;
}

void terminal_history_open(struct terminal_history *history_, const char *model)
{
    HistEvent event;
    *history_ = (struct terminal_history){ history_init(), find_path(model) };
    if (!history_->lines) // it fails for want of memory alone
        memory_exhausted(1, HISTORY_BYTES);
    history(history_->lines, &event, H_SETSIZE, MESSAGES_MAX);
    history(history_->lines, &event, H_SETUNIQUE, 1);
    if (history_->path)
        history(history_->lines, &event, H_LOAD, history_->path);
}

static void save(const struct terminal_history *history_)
{
    HistEvent event;
    if (!history_->path)
        return;
    mode_t before = umask(077);
    history(history_->lines, &event, H_SAVE, history_->path);
    umask(before);
    chmod(history_->path, 0600);
}

void terminal_history_add(struct terminal_history *history_, struct bytes message)
{
    HistEvent event;
    if (!message.len || message.len > MESSAGE_BYTES_MAX)
        return;
    history(history_->lines, &event, H_ENTER, message.data);
    save(history_);
}

void terminal_history_close(struct terminal_history *history_)
{
    history_end(history_->lines);
    free(history_->path);
}
