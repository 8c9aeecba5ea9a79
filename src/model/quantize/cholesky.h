// SPDX-License-Identifier: Apache-2.0
// model/quantize/cholesky.h: for each matrix, by which of its weights the errors of others can be made up for. That is
// known from the hessian of what it is multiplied with (kernel/ref/hessian.h), and those from whoever can run the model
// over a text: for as many ops at a time as there is memory for.
#ifndef MODEL_QUANTIZE_CHOLESKY_H
#define MODEL_QUANTIZE_CHOLESKY_H

#include "device/thread_pool.h"
#include "model/quantize/items.h"

// Where an op's hessian go: those of the inputs of all its matrices, or of experts whose inputs are their own, of one
// expert after the other.
struct hessian_target {
    int op; // its place in model.ops
    float *hessian;
};

struct hessian_source {
    // Adds those of one of the text's pieces.
    bool (*gather)(void *context, int piece, const struct hessian_target *wanted, int count, struct error *err);
    void *context;
    int pieces;
    size_t bytes; // that hessian may take at a time
};

struct cholesky {
    const struct hessian_source *source; // NULL: nothing is known
    const struct model *model;
    struct thread_pool *team;
    bool (*progress)(void *context, double values, struct error *err); // of matrices, a text long; false: stop
    void *progress_context;
    struct hessian_target *held; // (held_count): the ops at hand
    uint8_t **states;            // of each of them, by expert: what has become of its hessian
    int held_count;
};

// Do an op's experts have hessian of their own?
bool cholesky_per_expert(const struct op *op);

// The factor for items->items[index], which is the cholesky' until the next one is asked for. NULL: its inputs are not
// known, or were nothing but zeros, or their hessian take too much memory.
bool cholesky_find(struct cholesky *cholesky, const struct items *items, size_t index, const float **out,
                  struct error *err);

void cholesky_free(struct cholesky *cholesky);

#endif
