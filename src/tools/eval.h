// SPDX-License-Identifier: Apache-2.0
// tools/eval.h: the parts of `nibble eval`: one cache measured, or many of them in a table (the sweep).
#ifndef TOOLS_EVAL_H
#define TOOLS_EVAL_H

#include "base/strbuf.h"
#include "tools/cache_formats.h"
#include "tools/needle.h"
#include "cli/quality.h"

// One cache of a sweep.
struct sweep_row {
    const char *format;
    bool plain;    // stored as is: no transform, scales of the largest value, no sink pages
    char *refused; // why it cannot run; NULL: it was measured
    struct quality_size size;
    struct quality_score score;
    struct needle_score needle;
    double decode; // tokens per second of one sequence at the end of a chunk
};

struct sweep {
    const char *model, *against;
    bool needle;
    int context, chunks;
    struct sweep_row *rows; // two for each format at most
    int count;
};

const char *sweep_stored(const struct sweep_row *row); // "as is" or "planned"

// Whether the formats and options can be understood. A format that this model or device refuses is no error: the sweep
// has a row for it.
bool sweep_check(const struct nibble_checkpoint *checkpoint, const struct cache_formats *formats,
                 const struct nibble_options *options, struct error *err);

// Every format stored as is and, where that is another cache, as the options say.
bool sweep_measure(struct sweep *sweep, const struct nibble_checkpoint *checkpoint,
                   const struct nibble_tokenizer *tokenizer, const struct quality_text *text,
                   const struct cache_formats *formats, const struct nibble_options *options, struct error *err);
void sweep_free(struct sweep *sweep);

void sweep_print_table(const struct sweep *sweep, struct strbuf *out);
void sweep_print_json(const struct sweep *sweep, struct strbuf *out);

#endif
