// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/message.h"
#include "cli/terminal_history.h"

enum { EDITOR_BYTES = 4096 }; // what an editor needs about

static const char first_prompt[] = "> ", next_prompt[] = "... ";

// Bracketed paste (DEC private mode 2004): the terminal sends these around what is pasted.
static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l", paste_begin[] = "\033[200~";
static const wchar_t paste_end[] = L"\033[201~";
enum { PASTE_END = sizeof paste_end / sizeof *paste_end - 1 };

struct terminal {
    const char *prompt;
    EditLine *edit; // NULL: not a terminal
    struct terminal_history history;
    terminal_complete *complete;
};

static volatile sig_atomic_t resized;

static void on_resize(int signal)
{
    (void)signal;
    resized = 1;
}

static char *prompt_of(EditLine *edit)
{
    struct terminal *terminal;
    el_get(edit, EL_CLIENTDATA, &terminal);
    return (char *)terminal->prompt;
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

// ---- keys ---------------------------------------------------------------------------------------------------------

// Reads a character for the editor, which takes a new width of the window into account at once.
static int read_character(EditLine *edit, wchar_t *out)
{
    mbstate_t state = { 0 };
    char byte;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got < 0 && errno == EINTR && resized) {
            resized = 0;
            el_resize(edit);
            continue;
        }
        if (got != 1)
            return (int)got;
        size_t len = mbrtowc(out, &byte, 1, &state);
        if (len == (size_t)-1) {
            memset(&state, 0, sizeof state); // not UTF-8: the byte is left out
            continue;
        }
        if (len != (size_t)-2)
            return 1;
    }
}

void terminal_prefill(struct terminal *terminal, const char *text)
{
    struct strbuf keys = { 0 };
    if (!terminal->edit)
        return;
    strbuf_add_format(&keys, "%s%s%ls", paste_begin, text, paste_end);
    el_push(terminal->edit, keys.data);
    strbuf_free(&keys);
}

// ---- completion ---------------------------------------------------------------------------------------------------

void terminal_words_add(struct terminal_words *words, const char *word)
{
    words->items = memory_grow(words->items, words->count + 1, sizeof *words->items);
    words->items[words->count] = memory_new(strlen(word) + 1, 1);
    strcpy(words->items[words->count++], word);
}

// Keeps the words that begin as typed.
static void keep_begun(struct terminal_words *words, struct bytes begun)
{
    size_t kept = 0;
    for (size_t i = 0; i < words->count; i++)
        if (bytes_start_with(bytes_of(words->items[i]), begun))
            words->items[kept++] = words->items[i];
        else
            free(words->items[i]);
    words->count = kept;
}

static size_t common_length(const struct terminal_words *words)
{
    size_t len = words->count ? strlen(words->items[0]) : 0;
    for (size_t i = 1; i < words->count; i++)
        while (strncmp(words->items[0], words->items[i], len))
            len--;
    return len;
}

// Inserts what all words have in common; when that is nothing, lists them.
static unsigned char insert_common(EditLine *edit, const struct terminal_words *words, size_t begun)
{
    size_t common = common_length(words);
    struct strbuf text = { 0 };
    if (!words->count)
        return CC_REFRESH_BEEP;
    if (common == begun && words->count > 1) {
        fputc('\n', stderr);
        for (size_t i = 0; i < words->count; i++)
            fprintf(stderr, "%s  ", words->items[i]);
        fputc('\n', stderr);
        return CC_REDISPLAY;
    }
    strbuf_add(&text, words->items[0] + begun, common - begun);
    if (words->count == 1 && words->items[0][common - 1] != '/')
        strbuf_add_byte(&text, ' ');
    el_insertstr(edit, text.data);
    strbuf_free(&text);
    return CC_REFRESH;
}

static unsigned char complete(EditLine *edit, int key)
{
    struct terminal *terminal;
    const LineInfo *line = el_line(edit);
    struct bytes text = { line->buffer, (size_t)(line->cursor - line->buffer) };
    struct terminal_words words = { .from = text.len };
    (void)key;
    el_get(edit, EL_CLIENTDATA, &terminal);
    terminal->complete(text, &words);
    keep_begun(&words, bytes_from(text, words.from));
    unsigned char result = insert_common(edit, &words, text.len - words.from);
    for (size_t i = 0; i < words.count; i++)
        free(words.items[i]);
    free(words.items);
    return result;
}

// ---- opening and closing ------------------------------------------------------------------------------------------

static void bind(EditLine *edit, const char *keys, const char *name, const char *help,
                 unsigned char (*function)(EditLine *edit, int key))
{
    el_set(edit, EL_ADDFN, name, help, function);
    el_set(edit, EL_BIND, keys, name, NULL);
}

struct terminal *terminal_open(const char *model, terminal_complete *words)
{
    struct terminal *terminal = memory_new(1, sizeof *terminal);
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return terminal;
    terminal->complete = words;
    terminal->edit = el_init("nibble", stdin, stderr, stderr);
    if (!terminal->edit) // it fails for want of memory alone
        memory_exhausted(1, EDITOR_BYTES);
    terminal_history_open(&terminal->history, model);
    el_set(terminal->edit, EL_CLIENTDATA, terminal);
    el_set(terminal->edit, EL_PROMPT, prompt_of);
    el_set(terminal->edit, EL_EDITOR, "emacs");
    el_set(terminal->edit, EL_HIST, history, terminal->history.lines);
    el_set(terminal->edit, EL_GETCFN, read_character);
    bind(terminal->edit, paste_begin, "nibble-insert-paste", "insert what is pasted", insert_paste);
    bind(terminal->edit, "^I", "nibble-complete", "complete a command", complete);
    el_source(terminal->edit, NULL);
    sigaction(SIGWINCH, &(struct sigaction){ .sa_handler = on_resize }, NULL);
    return terminal;
}

void terminal_close(struct terminal *terminal)
{
    if (terminal->edit) {
        terminal_history_close(&terminal->history);
        el_end(terminal->edit);
    }
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
    if (resized)
        el_resize(terminal->edit);
    resized = 0;
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

char *terminal_read(struct terminal *terminal, size_t *len, bool *interrupted)
{
    struct message message = { 0 };
    bool complete = false;
    enum reading reading = READ_LINE;
    while (!complete && reading == READ_LINE)
        reading = read_line(terminal, &message, &complete);
    *interrupted = reading == READ_INTERRUPTED;
    if (reading == READ_END && !message_is_open(&message))
        return NULL;
    if (terminal->edit)
        terminal_history_add(&terminal->history, strbuf_bytes(&message.text));
    if (*interrupted)
        strbuf_free(&message.text);
    *len = message.text.len;
    return message.text.data ? message.text.data : memory_new(1, 1);
}
