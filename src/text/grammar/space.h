// SPDX-License-Identifier: Apache-2.0
// text/grammar/space.h: JSON white space (RFC 8259, section 2) around punctuation. Runs are bounded, so that a model
// cannot write white space for ever: a few blanks, then up to two line breaks, each followed by indentation.
#ifndef TEXT_GRAMMAR_SPACE_H
#define TEXT_GRAMMAR_SPACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SPACE_BLANKS_MAX = 4,  // in a line that goes on
    SPACE_INDENT_MAX = 64, // at the beginning of a line
    SPACE_LINES_MAX = 2,
};

// How far a run has come; zeroed where it begins. It may end anywhere.
struct space {
    uint32_t lines, blanks; // blanks: behind the last line break
};

static inline bool space_step(struct space *space, uint8_t byte)
{
    if (byte == '\n') {
        space->blanks = 0;
        return space->lines++ < SPACE_LINES_MAX;
    }
    bool blank = byte == ' ' || byte == '\t' || byte == '\r';
    return blank && space->blanks++ < (space->lines ? SPACE_INDENT_MAX : SPACE_BLANKS_MAX);
}

#endif
