// SPDX-License-Identifier: Apache-2.0
#include "engine/reader.h"

#include <assert.h>
#include <string.h>

#include "engine/batch.h"
#include "engine/sampling/logits.h"

void reader_open(struct reader *reader, struct engine *engine)
{
    reader->engine = engine;
    sequence_open(&reader->sequence, engine->pools, engine->plan.class_count, engine->plan.max_model_len);
}

void reader_close(struct reader *reader) { sequence_close(&reader->sequence); }

bool reader_append(struct reader *reader, const int32_t *ids, size_t count, struct error *err)
{
    if (!engine_check_length(reader->engine, reader->sequence.count, count, err)
        || !engine_check_ids(reader->engine, ids, count, err))
        return false;
    sequence_append(&reader->sequence, ids, (int)count);
    return true;
}

bool reader_assign(struct reader *reader, const int32_t *ids, size_t count, struct error *err)
{
    struct sequence *sequence = &reader->sequence;
    int common = 0;
    while (common < sequence->count && (size_t)common < count && sequence->ids[common] == ids[common])
        common++;
    size_t added = count - (size_t)common;
    if (!engine_check_length(reader->engine, common, added, err)
        || !engine_check_ids(reader->engine, ids + common, added, err))
        return false;
    sequence_truncate(sequence, common);
    sequence->count = common;
    sequence_append(sequence, ids + common, (int)added);
    return true;
}

// Reads the next `count` tokens; logits after the last `outputs` of them.
static bool read_chunk(struct reader *reader, int count, int outputs, const float **logits, struct error *err)
{
    struct sequence *sequence = &reader->sequence;
    if (!sequence_take_pages(sequence, count))
        return fail(err, "the KV cache has no page left; open fewer sequences at once");
    batch_clear(reader->engine);
    batch_add(reader->engine, sequence, count, outputs);
    struct engine_result result;
    int step = engine_start(reader->engine, err);
    if (!step || !engine_finish(reader->engine, step, &result, err))
        return false;
    *logits = result.logits;
    sequence->cached += count;
    int vocabulary = reader->engine->model.config.vocabulary;
    for (int i = 0; i < outputs; i++)
        if (!logits_finite(*logits + (size_t)i * (size_t)vocabulary, vocabulary))
            return fail(err, LOGITS_NOT_FINITE, sequence->cached - outputs + i);
    return true;
}

static int smaller(int a, int b) { return a < b ? a : b; }

bool reader_read(struct reader *reader, const float **logits, struct error *err)
{
    struct sequence *sequence = &reader->sequence;
    assert(sequence->count > 0);
    sequence_truncate(sequence, sequence->count - 1);
    while (sequence->cached < sequence->count) {
        int count = smaller(sequence_readable(sequence), reader->engine->plan.batch_tokens);
        bool last = sequence->cached + count == sequence->count;
        if (!read_chunk(reader, count, last ? 1 : 0, logits, err))
            return false;
    }
    return true;
}

bool reader_score(struct reader *reader, float *logits, struct error *err)
{
    struct sequence *sequence = &reader->sequence;
    size_t vocabulary = (size_t)reader->engine->model.config.vocabulary;
    while (sequence->cached < sequence->count) {
        const float *found = NULL;
        int count = smaller(sequence_readable(sequence), reader->engine->plan.outputs);
        if (!read_chunk(reader, count, count, &found, err))
            return false;
        memcpy(logits, found, (size_t)count * vocabulary * sizeof *logits);
        logits += (size_t)count * vocabulary;
    }
    return true;
}
