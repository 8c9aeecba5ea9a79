// SPDX-License-Identifier: Apache-2.0
// plan/explain.h: a plan in words. The JSON is the one representation (doc/interface.md); texts are rendered from it.
#ifndef PLAN_EXPLAIN_H
#define PLAN_EXPLAIN_H

#include "base/strbuf.h"
#include "plan/plan.h"

struct explain_style {
    bool colour;  // for a terminal
    bool verbose; // the kernels of every op, and every kernel that was rejected
};

void explain_short(const struct plan *plan, struct strbuf *out); // a line, for the start of run, and warnings
void explain_full(const struct plan *plan, struct explain_style style, struct strbuf *out);
void explain_json(const struct plan *plan, struct strbuf *out); // a refusal, too

#endif
