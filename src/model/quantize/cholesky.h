// SPDX-License-Identifier: Apache-2.0
// model/quantize/cholesky.h: the Cholesky factors of GPTQ's Hessians, by matrix. The Hessians come from a callback that
// runs the model over a text (kernel/ref/hessian.h), for as many ops at a time as memory allows.
#ifndef MODEL_QUANTIZE_CHOLESKY_H
#define MODEL_QUANTIZE_CHOLESKY_H

#include "device/thread_pool.h"
#include "model/quantize/items.h"

// An op's Hessian; for experts with inputs of their own, one per expert.
struct hessian_target {
    int op; // index into model.ops
    float *hessian;
};

struct hessian_source {
    // Adds the contribution of one window of the text.
    bool (*accumulate)(void *context, int window, const struct hessian_target *wanted, int count, struct error *err);
    void *context;
    int windows;
    size_t bytes; // memory limit of all Hessians at a time
};

struct cholesky {
    const struct hessian_source *source; // NULL: no GPTQ
    const struct model *model;
    struct thread_pool *pool;
    bool (*progress)(void *context, double values, struct error *err); // values = matrices x text; false stops
    void *progress_context;
    struct hessian_target *held; // (held_count): the Hessians in memory
    uint8_t **states;            // by held op and expert: enum state
    int held_count;
};

// True if each expert of the op has a Hessian of its own.
bool cholesky_per_expert(const struct op *op);

// The Cholesky factor for items->items[index], valid until the next call. NULL if the item has no Hessian, the Hessian
// is zero, or it needs too much memory.
bool cholesky_find(struct cholesky *cholesky, const struct items *items, size_t index, const float **out,
                   struct error *err);

void cholesky_free(struct cholesky *cholesky);

#endif
