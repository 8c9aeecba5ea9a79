// SPDX-License-Identifier: Apache-2.0
// cli/config.h: options from a YAML file (--config FILE). A key is an option's name without its dashes, with - or _
// between words; a value is a scalar, a list of them or, for a flag, true or false. Null leaves the option out.
// The file becomes arguments, so that it can say what the command line can, and no more.
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include "base/error.h"
#include "base/memory.h"
#include "cli/options.h"

enum { CONFIG_BYTES_MAX = 1 << 16, CONFIG_ARGUMENTS_MAX = 512 };

struct config {
    struct arena arena;                    // has the arguments' text
    char *arguments[CONFIG_ARGUMENTS_MAX]; // "--name=value" or "--name", in the file's order
    int count;
};

// Keys that are no option of the table, nested values, aliases and second documents are errors that name their line.
bool config_parse(struct bytes in, const struct option_row *options, struct config *out, struct error *err);
void config_free(struct config *config); // also after a failure

// Reads the file of the last --config in argv, if there is one, and gives argv with the file's arguments in front, less
// those of options that the command line has itself: it wins. Borrowed from *config; NULL with a sentence in *err.
char **config_apply(struct config *config, const struct option_row *options, int *argc, char **argv, struct error *err);

#endif
