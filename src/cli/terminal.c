// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

enum { HISTORY_LINES = 1000 };

struct terminal {
    const char *prompt;
    EditLine *edit;       // NULL: not a terminal
    History *history;
    char *history_path;   // NULL: nowhere to keep it
};

static char *prompt_of(EditLine *edit)
{
    struct terminal *terminal;
    el_get(edit, EL_CLIENTDATA, &terminal);
    return (char *)terminal->prompt;
}

// XDG's place for state, its folders made as needed. NULL when the person has no home.
static char *find_history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char folder[512];
    if (state && *state)
        snprintf(folder, sizeof folder, "%s/nibble", state);
    else if (home && *home)
        snprintf(folder, sizeof folder, "%s/.local/state/nibble", home);
    else
        return NULL;
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
    mkdir(folder, 0700);
    char *path = memory_new(strlen(folder) + sizeof "/history", 1);
    sprintf(path, "%s/history", folder);
    return path;
}

struct terminal *terminal_open(const char *prompt)
{
    struct terminal *terminal = memory_new(1, sizeof *terminal);
    terminal->prompt = prompt;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return terminal;
    HistEvent event;
    terminal->edit = el_init("nibble", stdin, stderr, stderr);
    terminal->history = history_init();
    terminal->history_path = find_history_path();
    history(terminal->history, &event, H_SETSIZE, HISTORY_LINES);
    if (terminal->history_path)
        history(terminal->history, &event, H_LOAD, terminal->history_path);
    el_set(terminal->edit, EL_CLIENTDATA, terminal);
    el_set(terminal->edit, EL_PROMPT, prompt_of);
    el_set(terminal->edit, EL_EDITOR, "emacs");
    el_set(terminal->edit, EL_HIST, history, terminal->history);
    el_source(terminal->edit, NULL);
    return terminal;
}

void terminal_close(struct terminal *terminal)
{
    HistEvent event;
    if (terminal->edit) {
        if (terminal->history_path)
            history(terminal->history, &event, H_SAVE, terminal->history_path);
        history_end(terminal->history);
        el_end(terminal->edit);
    }
    free(terminal->history_path);
    free(terminal);
}

bool terminal_is_interactive(const struct terminal *terminal)
{
    return terminal->edit;
}

static char *read_plain(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length = getline(&line, &capacity, stdin);
    if (length < 0) {
        if (!feof(stdin) && errno == ENOMEM) // else it would pass for the end of the text
            memory_exhausted(1, capacity);
        free(line);
        return NULL;
    }
    line[strcspn(line, "\r\n")] = '\0';
    return line;
}

char *terminal_read(struct terminal *terminal)
{
    if (!terminal->edit)
        return read_plain();
    int length = 0;
    errno = 0;
    const char *typed = el_gets(terminal->edit, &length);
    if (!typed || length <= 0) {
        fputc('\n', stderr);
        return length < 0 && errno == EINTR ? memory_new(1, 1) : NULL;
    }
    char *line = memory_new((size_t)length + 1, 1);
    memcpy(line, typed, (size_t)length);
    line[strcspn(line, "\r\n")] = '\0';
    HistEvent event;
    if (*line)
        history(terminal->history, &event, H_ENTER, typed);
    return line;
}
