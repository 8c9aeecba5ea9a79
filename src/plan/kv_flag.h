// SPDX-License-Identifier: Apache-2.0
// plan/kv_flag.h: the grammar of --kv-cache-dtype and of the skip list. FORMAT for all layers, or RANGE:FORMAT items
// separated by commas; FORMAT is a word or K/V with a word for each side; RANGE is 7, 4-9 or 4- (to the last).
#ifndef PLAN_KV_FLAG_H
#define PLAN_KV_FLAG_H

#include "base/dtype.h"
#include "base/error.h"

struct kv_formats {
    enum dtype k, v;
};

// One entry per layer; automatic[layer] stands for the word auto, and layers that are not cached need not be named.
// Errors in the flag itself are usage errors; a known word that nibble refuses is an ordinary one.
bool kv_flag_parse(const char *flag, int layers, const enum dtype *automatic, const bool *cached,
                   struct kv_formats *out, struct error *err);

// --kv-cache-dtype-skip-layers: indices, ranges and `sliding_window`, separated by spaces or commas; NULL: none.
// Marks the layers in skipped.
bool kv_skip_parse(const char *list, int layers, const bool *windowed, bool *skipped, struct error *err);

#endif
