// SPDX-License-Identifier: Apache-2.0
// cli/run_commands.h: the commands of a chat: one line that is `/` and a word, with or without arguments. Text such as
// /etc/passwd, several lines, and a line that begins with a space are messages.
#ifndef CLI_RUN_COMMANDS_H
#define CLI_RUN_COMMANDS_H

#include "cli/run_chat.h"
#include "cli/terminal.h"

bool run_commands_is_one(struct bytes text);
bool run_commands_do(struct run_chat *chat, struct bytes text, struct error *err);

// The words that may stand where the line ends: commands, and what they take.
void run_commands_complete(struct bytes line, struct terminal_words *out);

// The model and its device in a line, its context and cache in another.
void run_commands_describe_model(const struct run_chat *chat, struct nibble_text *out);

#endif
