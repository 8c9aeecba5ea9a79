// SPDX-License-Identifier: Apache-2.0
// text/tools/scan.h: an incremental JSON recogniser: one value, byte by byte as a model writes it. Strings may hold
// control bytes, which JSON does not allow and models write all the same; otherwise nothing passes that is not JSON.
#ifndef TEXT_TOOLS_SCAN_H
#define TEXT_TOOLS_SCAN_H

#include "base/strbuf.h"

enum { SCAN_DEPTH_MAX = 128 };

enum scan_answer {
    SCAN_MORE,   // the value goes on
    SCAN_WHOLE,  // it ends with this byte
    SCAN_BEFORE, // it is a number and ended before this byte
    SCAN_BAD,    // it is no JSON
};

struct scan { // zeroed: before the value
    int state;
    bool in_key;
    int digits;       // of a \u escape, still to come
    const char *word; // what is still to come of true, false or null
    int depth;
    char closes[SCAN_DEPTH_MAX]; // the bracket that closes each open container
};

enum scan_answer scan_add(struct scan *scan, char byte);

struct scan_quotes { // zeroed: at the beginning of a JSON text
    bool inside, escaped;
};

// Appends a byte of a JSON text; a control byte between quotes as its escape.
void scan_escape(struct scan_quotes *quotes, char byte, struct strbuf *out);

// Appends the arguments of a call, which are whole: control bytes in strings are escaped, an object inside a string is
// taken out of it, and no arguments are {}.
void scan_arguments(struct bytes json, struct strbuf *out);

bool scan_in_text(const struct scan *scan); // inside a string

#endif
