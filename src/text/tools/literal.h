// SPDX-License-Identifier: Apache-2.0
// text/tools/literal.h: an incremental parser of literals in Python's syntax or Gemma's, which writes them as JSON.
// Both take JSON as well.
#ifndef TEXT_TOOLS_LITERAL_H
#define TEXT_TOOLS_LITERAL_H

#include "text/tools/scan.h"

enum { LITERAL_WORD_BYTES = 8 };

struct literal {       // zeroed: before the value
    const char *quote; // Gemma's, around strings; NULL: Python
    int state;
    char delimiter; // of the string at hand
    bool in_key;
    bool comma;     // due before the next member
    int digits;     // of an escape, still to come
    size_t matched; // bytes of the quote
    int depth;
    char closes[SCAN_DEPTH_MAX];
    char word[LITERAL_WORD_BYTES];
    size_t word_len;
    struct scan number;
};

// Appends what the byte adds to the JSON text. The answers are those of scan_add.
enum scan_answer literal_add(struct literal *literal, char byte, struct strbuf *out);

// Appends the JSON of a whole literal; false: it is none, and `out` is as it was.
bool literal_read(const char *quote, struct bytes text, struct strbuf *out);

#endif
