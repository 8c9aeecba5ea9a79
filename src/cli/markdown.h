// SPDX-License-Identifier: Apache-2.0
// cli/markdown.h: Markdown that streams to a terminal: headings, lists, quotes, code, emphasis, in colours and words
// that wrap.
//   (1) nothing is lost: marks that turn out to mean nothing are written as they are
//   (2) text is held back only while its meaning is open: a mark until its counterpart or the line's end has come, at
//       most HOLD_MAX bytes of it
//   (3) code blocks and rows of tables are written as they are, without a wrap
#ifndef CLI_MARKDOWN_H
#define CLI_MARKDOWN_H

#include "cli/wrap.h"

enum { MARKDOWN_NESTED_MAX = 8 };

// An emphasis whose end is known to come.
struct markdown_mark {
    char mark;
    int len;
};

// A zeroed one begins a text.
struct markdown {
    struct wrap wrap;      // what is written is in wrap.out
    struct strbuf pending; // not understood yet
    bool within_line, heading, code;
    char fence; // of the code block
    int fence_len;
    char before; // the byte before the pending ones
    struct markdown_mark open[MARKDOWN_NESTED_MAX];
    int open_count;
};

void markdown_add(struct markdown *markdown, struct bytes text);
void markdown_finish(struct markdown *markdown); // what is pending; styles end
void markdown_free(struct markdown *markdown);

#endif
