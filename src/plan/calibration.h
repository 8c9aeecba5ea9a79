// SPDX-License-Identifier: Apache-2.0
// plan/calibration.h: what a model's keys are stored as (kernel/op.h: transform_args), and what was measured to choose
// it: keys that a text leaves behind, and how far attention strays when they are stored in a layer's format.
#ifndef PLAN_CALIBRATION_H
#define PLAN_CALIBRATION_H

#include "base/dtype.h"
#include "base/memory.h"

// A transform is a set of these; KV_TRANSFORMS is how many sets there are.
enum { KV_CENTRE = 1, KV_ROTATE = 2, KV_TRANSFORMS = 4 };

// A way to store keys, and how far attention is off with it: NaN where it does not fit the layer.
struct kv_way {
    int k;                          // the format
    int kept;                       // tokens at a sequence's beginning that stay in 16 bits
    int search;                     // are scales chosen by least square error?
    float (*errors)[KV_TRANSFORMS]; // (layers)
};

enum { KV_WAYS_MAX = 128 }; // more than there are combinations of formats below 16 bits, sink pages and scales

struct kv_calibration {
    int layers;
    struct kv_calibrated {
        const float *centre;        // (kv_heads, head_dim): the mean of its keys; NULL: it was not measured
        enum dtype k;               // the format of keys for which
        float error[KV_TRANSFORMS]; // attention is so far off, as a part of its result, by transform
        size_t centre_count;
    } *layer;
    int way_count;
    struct kv_way ways[KV_WAYS_MAX]; // of these a layer has the one that its plan stores keys in
    const char *warning;             // a sentence for the user, or NULL
    struct arena arena;
};

// "none", "centre", "rotate", "centre+rotate"
const char *kv_transform_word(int transform);

#endif
