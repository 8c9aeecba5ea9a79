// SPDX-License-Identifier: Apache-2.0
// tools/kv_scales.h: scales for an fp8 cache, measured on a text.
#ifndef TOOLS_KV_SCALES_H
#define TOOLS_KV_SCALES_H

#include "nibble.h"

struct kv_scales {
    float *k, *v; // by layer; heap
};

// Runs the model over the text (a file, or "-") on the CPU with a cache of float32. The largest magnitude is
// 448 times the scale.
bool kv_scales_measure(struct kv_scales *scales, const struct nibble_checkpoint *checkpoint, const char *text,
                       int threads, bool (*progress)(void *context, double done), void *progress_context,
                       struct error *err);
void kv_scales_free(struct kv_scales *scales);

#endif
