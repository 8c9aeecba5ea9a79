// SPDX-License-Identifier: Apache-2.0
// cli/wrap.h: word wrap of text that streams to a terminal.
//   (1) a word is written when it is whole; one that does not fit goes to the next line, the space before it is dropped
//   (2) widths are those of characters on a terminal: wide ones (CJK, emoji) take two columns, marks none; a line may
//       break between wide characters, but not before closing punctuation
//   (3) control characters become U+FFFD, \r is left out: an answer cannot move the cursor or retitle the window
#ifndef CLI_WRAP_H
#define CLI_WRAP_H

#include "base/strbuf.h"

// A zeroed one does not wrap. The caller writes out.data[0 .. len) and sets out.len to 0; wrap_free frees.
struct wrap {
    struct strbuf out;
    int columns;   // of the terminal; 0: lines are as long as they are. May change at any time
    int column;    // of the cursor
    int indent;    // of lines that a wrap begins
    bool verbatim; // spaces are kept, and words are not moved

    struct strbuf word; // not written yet, with the styles in it
    int word_width, spaces;
    uint32_t last; // codepoint
};

// UTF-8; bytes that are none become U+FFFD. A line end is written as it is.
void wrap_add(struct wrap *wrap, struct bytes text);
// An escape sequence, which takes no room.
void wrap_add_style(struct wrap *wrap, const char *sequence);
// Writes the word that is begun; the text goes on.
void wrap_flush(struct wrap *wrap);
void wrap_free(struct wrap *wrap);

#endif
