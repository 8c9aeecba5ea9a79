// SPDX-License-Identifier: Apache-2.0
// cli/terminal.h: terminal input: line editing with a history of its own for each model, completion and bracketed paste
// on a terminal (libedit), plain lines from a pipe. cli/message.h says which lines are one message.
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "base/bytes.h"

struct terminal;

// Words that may stand where a line ends: from its byte `from` on, all that has been typed of one.
struct terminal_words {
    size_t from;
    char **items; // heap
    size_t count;
};
void terminal_words_add(struct terminal_words *words, const char *word); // a copy

typedef void terminal_complete(struct bytes line, struct terminal_words *out);

struct terminal *terminal_open(const char *model, terminal_complete *complete);
void terminal_close(struct terminal *terminal);
bool terminal_is_interactive(const struct terminal *terminal);

// The next message begins as this text, which can be edited. Nothing where input is no terminal.
void terminal_prefill(struct terminal *terminal, const char *text);

// The next message without its last line end, on the heap; NULL at the end of input (Ctrl-D). *interrupted: Ctrl-C was
// pressed, and the message is empty.
char *terminal_read(struct terminal *terminal, size_t *len, bool *interrupted);

#endif
