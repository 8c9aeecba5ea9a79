// SPDX-License-Identifier: Apache-2.0
// engine/batch.h: the batch builder: it packs the next tokens of some sequences into the ragged batch of one step. The
// callers have taken the pages before, and note afterwards that the tokens are cached.
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/engine.h"
#include "engine/sequence.h"

void batch_clear(struct engine *engine);

// The next `count` tokens of a sequence; logits are wanted after the last `outputs` of them.
void batch_add(struct engine *engine, const struct sequence *sequence, int count, int outputs);

#endif
