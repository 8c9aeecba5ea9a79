// SPDX-License-Identifier: Apache-2.0
// cli/run_file.h: conversations in files: {"model": NAME, "messages": [...]}, as requests of the OpenAI API and
// `nibble render` have messages.
#ifndef CLI_RUN_FILE_H
#define CLI_RUN_FILE_H

#include "cli/run_chat.h"

// A file that is there already is not replaced, unless this conversation was saved to it or loaded from it.
bool run_file_save(struct run_chat *chat, const char *path, struct error *err);
bool run_file_load(struct run_chat *chat, const char *path, struct error *err);

#endif
