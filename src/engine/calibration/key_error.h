// SPDX-License-Identifier: Apache-2.0
// engine/calibration/key_error.h: quantisation error of attention: how much its output changes when keys are stored in
// a format, under each transform, measured on the queries, keys and values of one text. Transforms do not change
// values; values stay exact, unless their own error is asked for.
#ifndef ENGINE_CALIBRATION_KEY_ERROR_H
#define ENGINE_CALIBRATION_KEY_ERROR_H

#include "kernel/op.h"

// One layer's, after rope.
struct key_sample {
    const float *q, *k, *v; // (tokens, heads or kv_heads, head_dim)
    int tokens, heads, kv_heads, head_dim;
    int window;  // 0: full attention
    int rotated; // channels that RoPE has rotated; 0: none
    const float
        *rope_frequencies;    // (rotated / 2): the frequencies by which it has (kernel/op.h: rope_args), and by which
    const float *frequencies; // it will, where longer texts have others
    float scale, softcap;
    const float *sinks; // (heads) or NULL
    enum dtype format;  // that keys are stored in
    float layer_scale;
    enum dtype v_format; // and values
    float v_layer_scale;
    bool scale_search;
    int kept; // the first tokens' keys and values stay in 16 bits: next to no error
};

// The mean of one head's keys, (head_dim), as it would be in a text of `length` tokens: the mean of the keys before
// RoPE, rotated by the mean rotation over `length` positions. The text itself may be shorter.
void key_centre(const struct key_sample *sample, int kv_head, int length, float *centre);

// Squares of the difference, and of what it is a difference from: over some tokens of the text's second half, all of
// the queries that share this head.
struct key_error {
    double apart, all;
};
struct key_error key_error(const struct key_sample *sample, int kv_head, const float *centre, int transform);

// The same with both keys and values as they are stored, and of these themselves, all tokens': keys are as far off as
// without the centre, which no score knows, and are compared with what they are with it.
struct stored_error {
    struct key_error k, v, out;
};
struct stored_error stored_error(const struct key_sample *sample, int kv_head, const float *centre, int transform);

#endif
