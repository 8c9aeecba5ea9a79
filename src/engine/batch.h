// SPDX-License-Identifier: Apache-2.0
// engine/batch.h: from the next tokens of some sequences to one step of the engine. Their pages must be there; that the
// tokens are cached afterwards is for the sequences' owners to note.
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/engine.h"
#include "engine/sequence.h"

void batch_clear(struct engine *engine);

// The next `count` tokens of a sequence; logits are wanted after the last `outputs` of them.
void batch_add(struct engine *engine, const struct sequence *sequence, int count, int outputs);

#endif
