// SPDX-License-Identifier: Apache-2.0
// engine/sequence.h: one text being read and continued: its tokens, and the pages that hold those it has read.
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "engine/engine.h"
#include "kv/table.h"

struct sequence {
    struct engine *engine;  // borrowed
    int32_t *ids;           // (max_model_len)
    int count;              // tokens it has
    int cached;             // of them, how many the cache holds
    struct kv_table tables[KV_CLASSES_MAX];
};

void sequence_open(struct sequence *sequence, struct engine *engine);
void sequence_close(struct sequence *sequence);

// Becomes exactly these tokens; the common beginning stays cached. Refused ids leave it as it was.
bool sequence_assign(struct sequence *sequence, const int32_t *ids, size_t count, struct error *err);
bool sequence_append(struct sequence *sequence, const int32_t *ids, size_t count, struct error *err);

// Reads every token that is not cached and gives the logits after the last one: (vocabulary), the engine's until its
// next step. At least one token must be there; if all are cached the last one is read again.
bool sequence_read(struct sequence *sequence, const float **logits, struct error *err);

// Reads every token that is not cached and copies the logits after each of them: (uncached, vocabulary).
bool sequence_score(struct sequence *sequence, float *logits, struct error *err);

#endif
