// SPDX-License-Identifier: Apache-2.0
// cli/terminal.h: lines from a person: editing and history (kept in ~/.local/state/nibble/history) on a terminal, plain
// lines from a pipe.
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>

struct terminal;

struct terminal *terminal_open(const char *prompt);
void terminal_close(struct terminal *terminal);
bool terminal_is_interactive(const struct terminal *terminal);

// The next line without its end, on the heap; NULL at the end of input (Ctrl-D). Ctrl-C gives an empty line.
char *terminal_read(struct terminal *terminal);

#endif
