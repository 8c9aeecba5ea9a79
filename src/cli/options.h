// SPDX-License-Identifier: Apache-2.0
// cli/options.h: a command line as a table: one row per option gives parsing, checking and --help.
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum option_kind {
    OPTION_FLAG, // bool
    OPTION_INT,  // long long
    OPTION_REAL, // double
    OPTION_TEXT, // const char *
    OPTION_SIZE, // size_t, in bytes or with K, M or G
    OPTION_LIST, // struct strbuf: layers, ranges and words, gathered with spaces between; the option may repeat
};

struct option_row {
    const char *name;       // "--max-tokens"
    enum option_kind kind;
    void *target;           // keeps its value when the option is not given
    const char *argument;   // "N", for the help
    const char *help;
    double low, high;       // of OPTION_INT and OPTION_REAL, inclusive
};

struct command_line {
    const char *usage;                // "nibble run MODEL [PROMPT] [options]"
    const char *about;                // a sentence or two
    const char *example;
    const struct option_row *options; // ends in a row without a name
    int positional_min, positional_max; // positional_max < 0: any number
};

// Options and positionals may come in any order; `--name value` and `--name=value`; `--` ends the options; `-` is a
// positional. argv[0] is the command's name. Positionals are gathered at the start of argv, *count of them. Returns -1,
// or the status to exit with: the help (0) or what is wrong (2) has been printed.
int options_parse(const struct command_line *line, int argc, char **argv, int *count);

#endif
