// SPDX-License-Identifier: Apache-2.0
// engine/reader.h: prefill of a single sequence: one text is read alone, and the reader gives the logits after its
// tokens. It draws no tokens and shares no pages.
#ifndef ENGINE_READER_H
#define ENGINE_READER_H

#include "engine/engine.h"
#include "engine/sequence.h"

struct reader {
    struct engine *engine; // borrowed
    struct sequence sequence;
};

void reader_open(struct reader *reader, struct engine *engine);
void reader_close(struct reader *reader);

// Becomes exactly these tokens; the common beginning stays cached. Refused ids leave it as it was.
bool reader_assign(struct reader *reader, const int32_t *ids, size_t count, struct error *err);
bool reader_append(struct reader *reader, const int32_t *ids, size_t count, struct error *err);

// Reads every token that is not cached and gives the logits after the last one: (vocabulary), the engine's until its
// next step. At least one token must be there; if all are cached the last one is read again.
bool reader_read(struct reader *reader, const float **logits, struct error *err);

// Reads every token that is not cached and copies the logits after each of them: (uncached, vocabulary).
bool reader_score(struct reader *reader, float *logits, struct error *err);

#endif
