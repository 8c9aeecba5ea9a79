// SPDX-License-Identifier: Apache-2.0
// plan/op_shape.h: names and shapes of a plan's ops: what a trace calls an op, which buffers hold its results when it
// has run, and how wide they are. For tools that show a step op by op, and for the cost of each op (plan/cost.h).
#ifndef PLAN_OP_SHAPE_H
#define PLAN_OP_SHAPE_H

#include "base/strbuf.h"
#include "plan/plan.h"

// How many rows a step has.
struct plan_rows {
    int tokens, outputs;
    int each; // the most of one sequence
};

// The number of an op's load in a step. CPUs have two programs, one for decode and one for prefill.
int plan_op_load(const struct plan *plan, int op, const struct plan_rows *rows);

enum { OP_RESULTS_MAX = 3 };

// A buffer that an op writes: (rows, width), or with experts (rows, slots, width).
struct op_result {
    enum buffer buffer;
    int slots; // per token; 0: there is no such dimension
    int width;
};

struct op_results {
    int count; // 0: the op writes to the KV cache alone
    struct op_result item[OP_RESULTS_MAX];
};

// With what its kernel fuses: the results are then those of the ops that it does for its neighbours.
struct op_results plan_op_results(const struct plan *plan, int op, int load);
static inline size_t op_result_width(const struct op_result *result)
{
    return (size_t)result->width * (size_t)(result->slots ? result->slots : 1);
}

const char *buffer_word(enum buffer buffer);
bool buffer_holds_integers(enum buffer buffer);

// "embed", "0.norm", "0.linear2": the layer, the kind of op, and its number among those of its kind in the layer, from
// the second on. Ops that a plan leaves out are not counted and have no name. Fused ones have theirs, so that names are
// the same on all devices.
void plan_op_name(const struct plan *plan, int op, struct strbuf *out);

// The op of that name. False with a sentence that says which names there are.
bool plan_op_find(const struct plan *plan, const char *name, int *out, struct error *err);

#endif
