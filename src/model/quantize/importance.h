// SPDX-License-Identifier: Apache-2.0
// model/quantize/importance.h: how much each input of a matrix counts. A weight that is off does harm in proportion to
// what it is multiplied with. No text is needed to tell that roughly: what a norm gives is taken as noise whose
// channels vary as its weights say, and its variance is followed through matrices, attention and gates.
#ifndef MODEL_QUANTIZE_IMPORTANCE_H
#define MODEL_QUANTIZE_IMPORTANCE_H

#include "model/model.h"

// The variance of a buffer's channels, as a rule of how to get it.
struct importance {
    const struct tensor *norm; // squares of a norm's weights, `offset` added
    double offset;
    const struct importance *values; // of attention: each head's are those of the values that it shares
    int head_dim, sharing;
    const struct importance *gate, *up; // of a gated product
    float *rows;                        // of a matrix's results, which writing it fills in
    bool known;                         // whether it has
    int64_t count;
};

// What an op makes of the variances of its inputs: `now` has those of every buffer, or NULL where nothing is known. The
// results of a matrix are filled in by whoever writes it.
void importance_follow(const struct op *op, const struct model *model, const struct importance *now[BUFFER_COUNT],
                       struct importance *results[LINEAR_OUTPUTS_MAX], struct arena *arena);

// One for each of `count` inputs, 1 in the mean, none so small that it does not count; on the heap. NULL: nothing is
// known about them.
float *importance_of(const struct importance *importance, int64_t count);

#endif
