// SPDX-License-Identifier: Apache-2.0
// cli/run_print.h: an answer as it goes to stdout: byte for byte where that is no terminal, else with words that wrap
// and Markdown in colours.
#ifndef CLI_RUN_PRINT_H
#define CLI_RUN_PRINT_H

#include "cli/markdown.h"
#include "cli/run_session.h"

struct run_print {
    bool terminal, markdown, wraps;
    struct markdown text; // or its wrap alone
};

void run_print_open(struct run_print *print, const struct session *session);
bool run_print_add(struct run_print *print, struct bytes text, struct error *err);
bool run_print_finish(struct run_print *print, struct error *err); // with a line end; it can be used again
void run_print_close(struct run_print *print);

// Whether text on a terminal may have colours: NO_COLOR is not set.
bool run_print_may_style(int fd);

#endif
