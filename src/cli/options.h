// SPDX-License-Identifier: Apache-2.0
// cli/options.h: a command line as a table: one row per option gives parsing, checking and --help.
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/bytes.h"

enum option_kind {
    OPTION_FLAG,    // bool
    OPTION_SWITCH,  // bool; --no-NAME is its opposite
    OPTION_INT,     // int
    OPTION_LONG,    // int64_t, or uint64_t where `low` is not below 0
    OPTION_REAL,    // double
    OPTION_TEXT,    // const char *
    OPTION_TEXTS,   // struct option_texts; the option may repeat, and takes words that cannot be positionals any more
    OPTION_WORD,    // int: which of the row's words
    OPTION_SIZE,    // size_t, in bytes or with K, M or G
    OPTION_LIST,    // const char *: layers, ranges and words, each with a space behind it; the option may repeat
    OPTION_HEADING, // no option: a line of the help above a group
};

enum { OPTION_TEXTS_MAX = 64, POSITIONALS_REQUIRED_MAX = 2 };

struct option_texts {
    const char *items[OPTION_TEXTS_MAX];
    int count;
};

struct option_row {
    const char *name; // "--max-tokens"
    enum option_kind kind;
    void *target;         // keeps its value when the option is not given
    const char *argument; // "N", for the help
    const char *help;
    double low, high;         // of OPTION_INT, OPTION_LONG and OPTION_REAL, inclusive
    const char *const *words; // of OPTION_WORD, up to a NULL
    const char *short_name;   // "-tp", or NULL
};

// The row that answers to a name, dashes included; a switch answers to --no-NAME, too. NULL: none, and *near is the
// name that may have been meant, or NULL.
const struct option_row *option_find(const struct option_row *options, struct bytes name, const char **near);

struct command_line {
    const char *usage; // "nibble run MODEL [PROMPT] [options]"
    const char *about; // a sentence or two
    const char *example;
    const struct option_row *options;                   // ends in a row without a name
    const char *required[POSITIONALS_REQUIRED_MAX + 1]; // names of the positionals that must be there
    int positional_max;                                 // below 0: any number
};

// Options and positionals may come in any order; `--name value` and `--name=value`; `--` ends the options; `-` is a
// positional. argv[0] is the command's name. Positionals are gathered at the start of argv, *count of them. Returns -1,
// or the status to exit with: the help (0) or what is wrong (2) has been printed.
int options_parse(const struct command_line *line, int argc, char **argv, int *count);

#endif
