// SPDX-License-Identifier: Apache-2.0
// engine/calibration/text_observer.h: a calibration pass: it reads a text and shows the queries, keys and values of
// each layer to an observer. An engine of its own reads the text in one step, with a 16-bit cache, on the plan's
// device; the observer sees the inputs of attention layer by layer on the CPU.
#ifndef ENGINE_CALIBRATION_TEXT_OBSERVER_H
#define ENGINE_CALIBRATION_TEXT_OBSERVER_H

#include "engine/engine.h"
#include "engine/calibration/key_error.h"

enum { TEXT_WATCH_TOKENS = 1024, TEXT_WATCH_TOKENS_MIN = 16 };

struct text_watch {
    const struct plan *wanted;            // of who asks, made with
    const struct engine_options *options; // these; their `calibrating` gets the progress
    // All threads of the pool call it, each with its chunk, for each layer that text_watch_sees. The sample is complete
    // but for the formats of the cache.
    void (*look)(void *context, int layer, const struct key_sample *sample, int chunk, int chunks);
    void *context;
};

// Has the layer keys that are nothing but that, and values?
bool text_watch_sees(const struct plan *wanted, int layer);

// The number by which the cache divides a layer's keys or values: 1 where the format has no such scale.
bool text_watch_scale(enum dtype format, const struct tensor *tensor, float *out, struct error *err);

// ids: the text, of which the first tokens are taken.
bool text_watch_run(const struct text_watch *watch, const struct checkpoint *checkpoint, const int32_t *ids,
                    size_t count, struct error *err);

#endif
