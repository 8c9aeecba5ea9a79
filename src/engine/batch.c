// SPDX-License-Identifier: Apache-2.0
#include "engine/batch.h"

#include <assert.h>

void batch_clear(struct engine *engine) { engine->batch.tokens = engine->batch.sequences = engine->batch.outputs = 0; }

void batch_add(struct engine *engine, const struct sequence *sequence, int count, int outputs)
{
    struct batch *batch = &engine->batch;
    const struct plan *plan = &engine->plan;
    assert(count > 0 && count <= plan->batch_tokens - batch->tokens && batch->sequences < plan->max_num_seqs);
    assert(outputs >= 0 && outputs <= count && outputs <= plan->outputs - batch->outputs);
    struct batch_sequence *added = &engine->batch_sequences[batch->sequences++];
    *added = (struct batch_sequence){ .first = batch->tokens, .count = count };
    for (int i = 0; i < sequence->classes; i++)
        added->pages[i] = sequence->tables[i].pages;
    for (int i = 0; i < count; i++) {
        engine->ids[batch->tokens + i] = sequence->ids[sequence->cached + i];
        engine->positions[batch->tokens + i] = sequence->cached + i;
    }
    batch->tokens += count;
    for (int i = 0; i < outputs; i++)
        engine->output_rows[batch->outputs++] = batch->tokens - outputs + i;
}
