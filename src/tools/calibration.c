// SPDX-License-Identifier: Apache-2.0
#include "tools/calibration.h"

#include <stdlib.h>

#include "base/memory.h"
#include "cli/cli.h"

enum { CHUNK_TOKENS = 512, SLICE_TOKENS = 64 }; // no window is so short that it lets go of a slice at once

#define FP8_LARGEST 448.0f

ptrdiff_t calibration_ids(const struct nibble_checkpoint *checkpoint, const char *path, int32_t **ids,
                          struct error *err)
{
    struct nibble_text file = { 0 };
    struct nibble_tokenizer *tokenizer = nibble_tokenizer_open(checkpoint, err);
    ptrdiff_t count = -1;
    if (tokenizer && (!path || cli_read(path, &file, err))) {
        size_t len = file.len;
        const char *text = path ? file.data : nibble_calibration_text(&len);
        count = nibble_tokenize(tokenizer, text, len, NIBBLE_ADD_SPECIAL, ids, err);
    }
    if (!count) {
        fail(err, "%s holds no text to measure the model with", path);
        count = -1;
    }
    free(file.data);
    nibble_tokenizer_close(tokenizer);
    return count;
}

struct kv_scales_run {
    struct nibble_sequence *sequence;
    struct kv_scales *scales;
    float *logits; // (vocabulary)
    bool (*progress)(void *context, double done);
    void *progress_context;
};

// Measures a chunk from an empty cache.
static bool measure_chunk(struct kv_scales_run *m, const int32_t *ids, size_t count, double done, double share,
                          struct error *err)
{
    if (!nibble_sequence_assign(m->sequence, NULL, 0, err))
        return false;
    for (size_t at = 0; at < count; at += SLICE_TOKENS) {
        size_t end = at + SLICE_TOKENS < count ? at + SLICE_TOKENS : count;
        if (!nibble_sequence_assign(m->sequence, ids, end - 1, err)
            || !nibble_sequence_score(m->sequence, ids + end - 1, 1, m->logits, err))
            return false;
        nibble_sequence_kv_amax(m->sequence, at, m->scales->k, m->scales->v);
        if (!m->progress(m->progress_context, done + share * (double)end / (double)count))
            return fail(err, "interrupted");
    }
    return true;
}

static bool measure_text(struct kv_scales_run *m, struct nibble_engine *engine, const int32_t *ids, size_t count,
                         struct error *err)
{
    size_t chunk = (size_t)nibble_engine_max_model_len(engine);
    for (size_t at = 0; at < count; at += chunk) {
        size_t some = count - at < chunk ? count - at : chunk;
        if (!measure_chunk(m, ids + at, some, (double)at / (double)count, (double)some / (double)count, err))
            return false;
    }
    int layers = nibble_engine_layers(engine);
    for (int i = 0; i < layers; i++) {
        m->scales->k[i] = m->scales->k[i] > 0 ? m->scales->k[i] / FP8_LARGEST : 1;
        m->scales->v[i] = m->scales->v[i] > 0 ? m->scales->v[i] / FP8_LARGEST : 1;
    }
    return true;
}

bool kv_scales_measure(struct kv_scales *scales, const struct nibble_checkpoint *checkpoint, const char *text,
                       int threads, bool (*progress)(void *context, double done), void *progress_context,
                       struct error *err)
{
    int32_t *ids = NULL;
    ptrdiff_t count = calibration_ids(checkpoint, text, &ids, err);
    struct nibble_options options = { .kv_cache_dtype = "float32",
                                      .device = "cpu",
                                      .threads = threads,
                                      .max_model_len = count < CHUNK_TOKENS ? (int)count : CHUNK_TOKENS };
    struct nibble_engine *engine = count > 0 ? nibble_engine_open(checkpoint, &options, err) : NULL;
    bool ok = engine;
    if (ok) {
        size_t layers = (size_t)nibble_engine_layers(engine);
        *scales = (struct kv_scales){ memory_new(layers, sizeof(float)), memory_new(layers, sizeof(float)) };
        struct kv_scales_run m = { .sequence = nibble_sequence_open(engine),
                                   .scales = scales,
                                   .logits = memory_new((size_t)nibble_engine_vocabulary(engine), sizeof(float)),
                                   .progress = progress,
                                   .progress_context = progress_context };
        ok = measure_text(&m, engine, ids, (size_t)count, err);
        nibble_sequence_close(m.sequence);
        free(m.logits);
    }
    nibble_engine_close(engine);
    free(ids);
    return ok;
}

void kv_scales_free(struct kv_scales *scales)
{
    free(scales->k);
    free(scales->v);
    *scales = (struct kv_scales){ 0 };
}
