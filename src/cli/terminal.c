// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/message.h"

enum { HISTORY_MESSAGES = 1000, EDITOR_BYTES = 4096 }; // what an editor and a history need about

static const char first_prompt[] = "> ", next_prompt[] = "... ";

// Bracketed paste (DEC private mode 2004): the terminal sends these around what is pasted.
static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l", paste_begin[] = "\033[200~";
static const wchar_t paste_end[] = L"\033[201~";
enum { PASTE_END = sizeof paste_end / sizeof *paste_end - 1 };

struct terminal {
    const char *prompt;
    EditLine *edit; // NULL: not a terminal
    History *history;
    char *history_path; // NULL: nowhere to keep it
};

static char *prompt_of(EditLine *edit)
{
    struct terminal *terminal;
    el_get(edit, EL_CLIENTDATA, &terminal);
    return (char *)terminal->prompt;
}

// The history file in XDG's folder for state, which is made as needed. NULL without a home folder.
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

// ---- paste --------------------------------------------------------------------------------------------------------

static void set_paste(bool on)
{
    if (cli_stderr_is_terminal())
        fputs(on ? paste_on : paste_off, stderr);
}

// The editor's paste command: inserts all that is pasted at the cursor, line ends included; none of it is a key.
// Terminals send \r for the end of a line.
static unsigned char insert_paste(EditLine *edit, int key)
{
    wchar_t *text = NULL, c;
    size_t len = 0, capacity = 0;
    bool ended = false;
    (void)key;
    while (!ended && el_wgetc(edit, &c) == 1) {
        if (len + 1 >= capacity)
            text = memory_grow(text, capacity = 2 * capacity + 1024, sizeof *text);
        if (c)
            text[len++] = c == L'\r' ? L'\n' : c;
        ended = len >= PASTE_END && !wmemcmp(text + len - PASTE_END, paste_end, PASTE_END);
    }
    if (ended)
        text[len -= PASTE_END] = L'\0';
    if (ended && len)
        el_winsertstr(edit, text);
    free(text);
    return ended ? CC_REFRESH : CC_ERROR;
}

// ---- opening and closing ------------------------------------------------------------------------------------------

struct terminal *terminal_open(void)
{
    struct terminal *terminal = memory_new(1, sizeof *terminal);
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return terminal;
    HistEvent event;
    terminal->edit = el_init("nibble", stdin, stderr, stderr);
    terminal->history = history_init();
    if (!terminal->edit || !terminal->history) // it fails for want of memory alone
        memory_exhausted(1, EDITOR_BYTES);
    terminal->history_path = find_history_path();
    history(terminal->history, &event, H_SETSIZE, HISTORY_MESSAGES);
    if (terminal->history_path)
        history(terminal->history, &event, H_LOAD, terminal->history_path);
    el_set(terminal->edit, EL_CLIENTDATA, terminal);
    el_set(terminal->edit, EL_PROMPT, prompt_of);
    el_set(terminal->edit, EL_EDITOR, "emacs");
    el_set(terminal->edit, EL_HIST, history, terminal->history);
    el_set(terminal->edit, EL_ADDFN, "nibble-insert-paste", "insert what is pasted", insert_paste);
    el_set(terminal->edit, EL_BIND, paste_begin, "nibble-insert-paste", NULL);
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

bool terminal_is_interactive(const struct terminal *terminal) { return terminal->edit; }

// ---- reading ------------------------------------------------------------------------------------------------------

enum reading { READ_LINE, READ_END, READ_INTERRUPTED };

static enum reading read_plain(char **line, size_t *len)
{
    size_t capacity = 0;
    ssize_t got = getline(line, &capacity, stdin);
    if (got < 0 && !feof(stdin) && errno == ENOMEM) // else it would pass for the end of the text
        memory_exhausted(1, capacity);
    *len = got < 0 ? 0 : (size_t)got;
    return got < 0 ? READ_END : READ_LINE;
}

// *line is the editor's until the next call.
static enum reading read_edited(struct terminal *terminal, const char **line, size_t *len)
{
    int got = 0;
    set_paste(true);
    errno = 0;
    *line = el_gets(terminal->edit, &got);
    bool interrupted = got < 0 && errno == EINTR;
    set_paste(false);
    *len = got > 0 ? (size_t)got : 0;
    if (*line && *len)
        return READ_LINE;
    fputc('\n', stderr);
    return interrupted ? READ_INTERRUPTED : READ_END;
}

static struct bytes without_end(const char *line, size_t len)
{
    len -= len && line[len - 1] == '\n';
    len -= len && line[len - 1] == '\r';
    return (struct bytes){ line, len };
}

// Reads one line into the message. *complete: no more lines belong to it.
static enum reading read_line(struct terminal *terminal, struct message *message, bool *complete)
{
    char *plain = NULL;
    const char *line;
    size_t len;
    terminal->prompt = message_is_open(message) ? next_prompt : first_prompt;
    enum reading reading = terminal->edit ? read_edited(terminal, &line, &len) : read_plain(&plain, &len);
    if (reading == READ_LINE)
        *complete = message_add_line(message, without_end(terminal->edit ? line : plain, len));
    free(plain);
    return reading;
}

char *terminal_read(struct terminal *terminal, size_t *len)
{
    struct message message = { 0 };
    bool complete = false;
    enum reading reading = READ_LINE;
    while (!complete && reading == READ_LINE)
        reading = read_line(terminal, &message, &complete);
    if (reading == READ_END && !message_is_open(&message))
        return NULL;
    HistEvent event;
    if (terminal->edit && message.text.len)
        history(terminal->history, &event, H_ENTER, message.text.data);
    if (reading == READ_INTERRUPTED)
        strbuf_free(&message.text);
    *len = message.text.len;
    return message.text.data ? message.text.data : memory_new(1, 1);
}
