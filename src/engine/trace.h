// SPDX-License-Identifier: Apache-2.0
// engine/trace.h: the op tracer, an observer (engine/observer.h). It reports each op after it has run, with its kernel
// and the shape, time, cost and checksum of its results, and writes the results of one op to .npy files.
#ifndef ENGINE_TRACE_H
#define ENGINE_TRACE_H

#include "engine/observer.h"
#include "nibble.h"
#include "plan/plan.h"

struct trace;

// NULL: the op to dump is not in this plan, or its results are in no buffer. *wanted is borrowed until the trace is
// closed; the trace keeps nothing of the plan.
struct trace *trace_open(const struct nibble_trace *wanted, const struct plan *plan, struct error *err);
void trace_close(struct trace *trace); // NULL is fine

const struct engine_watch *trace_watch(const struct trace *trace);

#endif
