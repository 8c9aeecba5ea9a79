// SPDX-License-Identifier: Apache-2.0
// cli/terminal_history.h: the line editor's history, in a file for each model in XDG's folder for state
// (~/.local/state/nibble/chats/MODEL). Only its owner may read it.
#ifndef CLI_TERMINAL_HISTORY_H
#define CLI_TERMINAL_HISTORY_H

#include <histedit.h>

#include "base/bytes.h"

struct terminal_history {
    History *lines;
    char *path; // NULL: nowhere to keep it
};

void terminal_history_open(struct terminal_history *history, const char *model);
void terminal_history_add(struct terminal_history *history, struct bytes message); // and writes the file
void terminal_history_close(struct terminal_history *history);

#endif
