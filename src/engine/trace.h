// SPDX-License-Identifier: Apache-2.0
// engine/trace.h: the tracer of ops, an observer (engine/observer.h) that reports each op when it has run: its kernel,
// the shape, time, cost and checksum of its results; and that writes the results of one op to .npy files.
#ifndef ENGINE_TRACE_H
#define ENGINE_TRACE_H

#include "engine/observer.h"
#include "nibble.h"
#include "plan/plan.h"

struct trace;

// NULL: the op to dump is not in this plan, or its results are in no buffer. What is given is borrowed until it is
// closed; of the plan nothing is kept.
struct trace *trace_open(const struct nibble_trace *wanted, const struct plan *plan, struct error *err);
void trace_close(struct trace *trace); // NULL is fine

const struct engine_watch *trace_watch(const struct trace *trace);

#endif
