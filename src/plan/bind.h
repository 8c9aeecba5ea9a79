// SPDX-License-Identifier: Apache-2.0
// plan/bind.h: the rows for one request at each load, found once for all ops that ask the same, and why other rows were
// passed over.
#ifndef PLAN_BIND_H
#define PLAN_BIND_H

#include "plan/fit.h"
#include "plan/plan.h"

struct bind_rows {
    const struct kernel *row[KERNEL_LOADS]; // all NULL: there is none for one of the loads
};

struct bind {
    struct plan *plan;
    const struct plan_options *options;
    const struct kernel *attention, *linear; // rows that were asked for by name; NULL: none
    int count, capacity;
    struct bind_answer **answers; // in the plan's arena, like all that they point to
};

// The rows for what an op of this layer (-1: outside the layers) asks.
const struct bind_rows *bind_request(struct bind *bind, const struct fit_request *request, int layer);

// Writes all reasons into the plan, by row, and runs of layers with the same one as one entry.
void bind_note_reasons(struct bind *bind);

const char *bind_pin_flag(enum op_kind op);

#endif
