// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sequence_open(struct sequence *sequence, struct engine *engine)
{
    const struct plan *plan = &engine->plan;
    *sequence = (struct sequence){ .engine = engine };
    sequence->ids = memory_new((size_t)plan->max_model_len, sizeof *sequence->ids);
    for (int i = 0; i < plan->class_count; i++)
        kv_table_open(&sequence->tables[i], &engine->pools[i], plan->classes[i].window, plan->max_model_len);
}

void sequence_close(struct sequence *sequence)
{
    for (int i = 0; i < sequence->engine->plan.class_count; i++)
        kv_table_close(&sequence->tables[i]);
    free(sequence->ids);
    *sequence = (struct sequence){ 0 };
}

// Keeps the first `length` tokens' pages, or none when a window has already let go of what the next token needs.
static void truncate_cache(struct sequence *sequence, int length)
{
    if (length >= sequence->cached)
        return;
    bool usable = true;
    for (int i = 0; i < sequence->engine->plan.class_count; i++)
        usable &= kv_table_truncate(&sequence->tables[i], length);
    for (int i = 0; i < sequence->engine->plan.class_count && !usable; i++)
        kv_table_truncate(&sequence->tables[i], 0);
    sequence->cached = usable ? length : 0;
}

// Could these ids follow the first `kept` tokens?
static bool check_ids(const struct sequence *sequence, int kept, const int32_t *ids, size_t count, struct error *err)
{
    const struct engine *engine = sequence->engine;
    int longest = engine->plan.max_model_len, vocabulary = engine->model.config.vocabulary;
    if (count > (size_t)(longest - kept))
        return fail(err, "%d tokens and %zu more are longer than the context of %d tokens; shorten the text%s", kept,
                    count, longest, longest < engine->model.config.context ? " or raise --max-model-len" : "");
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return fail(err, "token id %d is outside the model's vocabulary, which is 0 to %d", ids[i], vocabulary - 1);
    return true;
}

bool sequence_append(struct sequence *sequence, const int32_t *ids, size_t count, struct error *err)
{
    if (!check_ids(sequence, sequence->count, ids, count, err))
        return false;
    if (count)
        memcpy(sequence->ids + sequence->count, ids, count * sizeof *ids);
    sequence->count += (int)count;
    return true;
}

bool sequence_assign(struct sequence *sequence, const int32_t *ids, size_t count, struct error *err)
{
    int common = 0;
    while (common < sequence->count && (size_t)common < count && sequence->ids[common] == ids[common])
        common++;
    if (!check_ids(sequence, common, ids + common, count - (size_t)common, err))
        return false;
    truncate_cache(sequence, common);
    sequence->count = common;
    return sequence_append(sequence, ids + common, count - (size_t)common, err);
}

// Takes pages for the next `count` tokens and puts them into the batch.
static bool prepare_batch(struct sequence *sequence, int count, struct error *err)
{
    struct engine *engine = sequence->engine;
    struct batch_sequence *in_batch = &engine->batch_sequences[0];
    *in_batch = (struct batch_sequence){ .first = 0, .count = count };
    for (int i = 0; i < engine->plan.class_count; i++) {
        kv_table_evict(&sequence->tables[i], sequence->cached);
        if (!kv_table_extend(&sequence->tables[i], sequence->cached + count))
            return fail(err, "the KV cache has no page left; open fewer sequences at once");
        in_batch->pages[i] = sequence->tables[i].pages;
    }
    for (int i = 0; i < count; i++) {
        engine->ids[i] = sequence->ids[sequence->cached + i];
        engine->positions[i] = sequence->cached + i;
    }
    engine->batch.tokens = count;
    engine->batch.sequences = 1;
    return true;
}

// Reads the next `count` tokens; logits after the last `outputs` of them.
static bool read_chunk(struct sequence *sequence, int count, int outputs, struct error *err)
{
    struct engine *engine = sequence->engine;
    if (!prepare_batch(sequence, count, err))
        return false;
    engine->batch.outputs = outputs;
    for (int i = 0; i < outputs; i++)
        engine->output_rows[i] = count - outputs + i;
    engine_step(engine);
    sequence->cached += count;
    const float *logits = engine->buffers[BUFFER_LOGITS];
    size_t vocabulary = (size_t)engine->model.config.vocabulary;
    for (size_t i = 0; i < (size_t)outputs * vocabulary; i++)
        if (!isfinite(logits[i]))
            return fail(err, "the model's logits are not finite after token %d; its weights are damaged",
                        sequence->cached - outputs + (int)(i / vocabulary));
    return true;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

bool sequence_read(struct sequence *sequence, const float **logits, struct error *err)
{
    assert(sequence->count > 0);
    truncate_cache(sequence, sequence->count - 1);
    while (sequence->cached < sequence->count) {
        int count = smaller(sequence->count - sequence->cached, sequence->engine->plan.batch_tokens);
        bool last = sequence->cached + count == sequence->count;
        if (!read_chunk(sequence, count, last ? 1 : 0, err))
            return false;
    }
    *logits = sequence->engine->buffers[BUFFER_LOGITS];
    return true;
}

bool sequence_score(struct sequence *sequence, float *logits, struct error *err)
{
    size_t vocabulary = (size_t)sequence->engine->model.config.vocabulary;
    while (sequence->cached < sequence->count) {
        int count = smaller(sequence->count - sequence->cached, sequence->engine->plan.outputs);
        if (!read_chunk(sequence, count, count, err))
            return false;
        memcpy(logits, sequence->engine->buffers[BUFFER_LOGITS], (size_t)count * vocabulary * sizeof *logits);
        logits += (size_t)count * vocabulary;
    }
    return true;
}
