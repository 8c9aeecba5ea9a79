// SPDX-License-Identifier: Apache-2.0
// cli/trace.h: `--trace ops` and NIBBLE_DUMP: each op of a step as a line on standard error, and the results of one as
// files (doc/debugging.md).
#ifndef CLI_TRACE_H
#define CLI_TRACE_H

#include "nibble.h"

enum trace_word { TRACE_NONE, TRACE_OPS };
extern const char *const trace_words[]; // of the option, up to a NULL

struct cli_trace {
    struct nibble_trace own;
    bool has_header; // the line with the columns' names is out
};

// The trace option for nibble_options; NULL: neither is requested. It points into *trace.
const struct nibble_trace *cli_trace_open(struct cli_trace *trace, enum trace_word word);

#endif
