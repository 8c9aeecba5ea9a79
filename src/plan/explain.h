// SPDX-License-Identifier: Apache-2.0
// plan/explain.h: a plan in words, for people and for programs (doc/interface.md has the JSON).
#ifndef PLAN_EXPLAIN_H
#define PLAN_EXPLAIN_H

#include "base/strbuf.h"
#include "plan/plan.h"

void explain_short(const struct plan *plan, struct strbuf *out); // a line or two, for the start of run
void explain_full(const struct plan *plan, struct strbuf *out);
void explain_json(const struct plan *plan, struct strbuf *out);

#endif
