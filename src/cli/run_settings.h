// SPDX-License-Identifier: Apache-2.0
// cli/run_settings.h: what /set changes in a chat: sampling parameters, the length of answers, and how they are shown.
#ifndef CLI_RUN_SETTINGS_H
#define CLI_RUN_SETTINGS_H

#include "base/bytes.h"
#include "cli/run_session.h"
#include "cli/terminal.h"

// "temperature 0.5", "verbose on".
bool run_settings_set(struct session *session, struct bytes text, struct error *err);
void run_settings_print(const struct session *session); // names, values and what they mean
void run_settings_complete(struct terminal_words *out); // adds all names

#endif
