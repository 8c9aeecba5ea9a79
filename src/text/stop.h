// SPDX-License-Identifier: Apache-2.0
// text/stop.h: stop strings in streamed text. A possible beginning of one is held back until the next piece decides.
// The text ends as soon as it holds a stop string, wherever the pieces were cut: the one that ends first wins; of those
// that end together the longest, which began first; of equal ones the first listed.
#ifndef TEXT_STOP_H
#define TEXT_STOP_H

#include "base/strbuf.h"

enum { STOP_STRINGS_MAX = 32, STOP_BYTES_MAX = 4096 }; // how many, and how long each may be

struct stop {
    const struct bytes *strings; // borrowed; none is empty
    int count;
    bool include;                 // the string that hits belongs to the text
    struct strbuf held;           // its end may begin a stop string
    size_t emitted;               // bytes of `held` that are emitted already
    struct stop_search *searches; // one per string, from the first piece on
};

// Appends to *out what has become certain. The index of the stop string that came first, -1: none yet. After a hit the
// rest of the text does not exist.
int stop_add(struct stop *stop, struct bytes piece, struct strbuf *out);
void stop_finish(struct stop *stop, struct strbuf *out); // the end came otherwise: what is held is text
void stop_free(struct stop *stop);

#endif
