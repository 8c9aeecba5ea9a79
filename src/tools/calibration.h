// SPDX-License-Identifier: Apache-2.0
// tools/calibration.h: calibration of quantize on a text: its tokens, and per-layer scales of an fp8 KV cache (amax).
#ifndef TOOLS_CALIBRATION_H
#define TOOLS_CALIBRATION_H

#include "base/error.h"

// The tokens of a file, of standard input for "-", or of the built-in text for NULL; on the heap. -1: there are none.
ptrdiff_t calibration_ids(const struct nibble_checkpoint *checkpoint, const char *path, int32_t **ids,
                          struct error *err);

struct kv_scales {
    float *k, *v; // by layer; heap
};

// Runs the model over the text (a file, or "-") on the CPU with a cache of float32. The largest magnitude is 448 times
// the scale.
bool kv_scales_measure(struct kv_scales *scales, const struct nibble_checkpoint *checkpoint, const char *text,
                       int threads, bool (*progress)(void *context, double done), void *progress_context,
                       struct error *err);
void kv_scales_free(struct kv_scales *scales);

#endif
