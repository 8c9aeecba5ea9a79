// SPDX-License-Identifier: Apache-2.0
// cli/terminal.h: terminal input: line editing with history (kept in ~/.local/state/nibble/history) and
// bracketed paste on a terminal (libedit), plain lines from a pipe. cli/message.h says which lines are one message.
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

struct terminal;

struct terminal *terminal_open(void);
void terminal_close(struct terminal *terminal);
bool terminal_is_interactive(const struct terminal *terminal);

// The next message without its last line end, on the heap; NULL at the end of input (Ctrl-D). Ctrl-C gives an empty
// one.
char *terminal_read(struct terminal *terminal, size_t *len);

#endif
