// SPDX-License-Identifier: Apache-2.0
// model/quantize/cholesky.h: for each matrix, by which of its weights the errors of others can be made up for. That is
// known from the moments of what it is multiplied with (kernel/ref/hessian.h), and those from whoever can run the model
// over a text: for as many ops at a time as there is memory for.
#ifndef MODEL_QUANTIZE_CHOLESKY_H
#define MODEL_QUANTIZE_CHOLESKY_H

#include "device/thread_pool.h"
#include "model/quantize/items.h"

// Where an op's moments go: those of the inputs of all its matrices, or of experts whose inputs are their own, of one
// expert after the other.
struct moments_wanted {
    int op; // its place in model.ops
    float *moments;
};

struct moments_source {
    // Adds those of one of the text's pieces.
    bool (*gather)(void *context, int piece, const struct moments_wanted *wanted, int count, struct error *err);
    void *context;
    int pieces;
    size_t bytes; // that moments may take at a time
};

struct factors {
    const struct moments_source *source; // NULL: nothing is known
    const struct model *model;
    struct thread_pool *team;
    bool (*progress)(void *context, double values, struct error *err); // of matrices, a text long; false: stop
    void *progress_context;
    struct moments_wanted *held; // (held_count): the ops at hand
    uint8_t **states;            // of each of them, by expert: what has become of its moments
    int held_count;
};

// Do an op's experts have moments of their own?
bool factors_each(const struct op *op);

// The factor for items->items[index], which is the factors' until the next one is asked for. NULL: its inputs are not
// known, or were nothing but zeros, or their moments take too much memory.
bool factors_find(struct factors *factors, const struct items *items, size_t index, const float **out,
                  struct error *err);

void factors_free(struct factors *factors);

#endif
