// SPDX-License-Identifier: Apache-2.0
// text/tools/scan.h: an incremental recogniser of one value, byte by byte as a model writes it: JSON, whose strings may
// hold control bytes, which models write all the same, or a literal of Python or Gemma, which is written out as JSON.
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

struct word;

struct scan {          // zeroed: before the value
    bool literal;      // of Python, or of Gemma, both of which take JSON as well
    const char *quote; // Gemma's, around strings
    int state;
    char delimiter; // of the string at hand
    bool in_key;
    bool comma;              // due before the next member
    int digits;              // of an escape, still to come
    const struct word *word; // true, false, null or Python's words for them
    size_t matched;          // bytes of the word or the quote
    int depth;
    char closes[SCAN_DEPTH_MAX]; // the bracket that closes each open container
};

enum scan_answer scan_add(struct scan *scan, char byte);
enum scan_answer scan_write(struct scan *scan, char byte, struct strbuf *out); // appends what it adds to the JSON text

// Appends the JSON of a whole Python literal; false: it is none, and `out` is as it was.
bool scan_read_literal(struct bytes text, struct strbuf *out);

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
