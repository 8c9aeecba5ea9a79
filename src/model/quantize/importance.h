// SPDX-License-Identifier: Apache-2.0
// model/quantize/importance.h: a data-free estimate of the importance of each input of a matrix: its variance. A norm's
// output is taken as noise with the variance of its weights, which is propagated through matrices, attention and gates.
#ifndef MODEL_QUANTIZE_IMPORTANCE_H
#define MODEL_QUANTIZE_IMPORTANCE_H

#include "model/model.h"

// The variance of a buffer's channels, as an expression.
struct importance {
    const struct tensor *norm; // a norm: squares of its weights plus `offset`
    double offset;
    const struct importance *values; // attention: the variance of each head's values
    int head_dim, sharing;
    const struct importance *gate, *up; // act_mul
    float *rows;                        // a matrix's results: filled in when it is written
    bool known;                         // true once filled in
    int64_t count;
};

// Propagates importance through an op. `now` has each buffer's importance, or NULL if unknown. The results of a matrix
// are filled in when the matrix is written.
void importance_follow(const struct op *op, const struct model *model, const struct importance *now[BUFFER_COUNT],
                       struct importance *results[LINEAR_OUTPUTS_MAX], struct arena *arena);

// The importance of `count` inputs, normalised to a mean of 1 and at least IMPORTANCE_LEAST; on the heap. NULL if
// unknown.
float *importance_of(const struct importance *importance, int64_t count);

#endif
