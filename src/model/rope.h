// SPDX-License-Identifier: Apache-2.0
// model/rope.h: rotary position embedding (RoPE): the frequency of each pair of channels, under the scalings that
// extend a model's context.
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "base/memory.h"
#include "model/source.h"

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG };

struct rope {
    double theta;
    enum rope_scaling scaling;
    double factor;                        // linear, llama3, yarn, longrope; 0: not given
    double original_context;              // llama3, yarn, longrope
    double low_frequency, high_frequency; // llama3
    double beta_fast, beta_slow;          // yarn
    bool truncate;                        // yarn: corrections at whole channels
    double magnitude;                     // of q and k after turning
    double attention;                     // yarn, of models that say so: what scores are multiplied by
    const float *divisors;                // (rotated / 2): a GGUF's (rope_freqs.weight), longrope's, or NULL
    const float *short_divisors;          // longrope, for texts of original_context tokens at most
};

// Reads a rope (with the default base already in theta, 0: 10000): rope_parameters (or its entry `kind`), the older
// rope_theta / rope_scaling, or GGUF keys. `context` is the model's longest text, `rotated` the rotary dims of a head.
// Unknown scalings are refused by name.
bool rope_read(struct rope *rope, const struct source *source, const char *kind, int context, int rotated,
               struct error *err);

// The divisors of longrope, which rope_read has found.
bool rope_read_divisors(struct rope *rope, const struct source *source, const char *kind, int rotated,
                        struct arena *arena, struct error *err);

// Radians per position for each of rotated / 2 pairs.
const float *rope_frequencies(const struct rope *rope, int rotated, struct arena *arena);

#endif
