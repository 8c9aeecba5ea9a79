// SPDX-License-Identifier: Apache-2.0
// plan/decide.h: the parts of a decision, in the order they are taken. Each fails with a sentence; a failure that is a
// refusal (not a mistake in the options themselves) fills plan->refusal as well.
#ifndef PLAN_DECIDE_H
#define PLAN_DECIDE_H

#include "plan/plan.h"

// formats.c: each layer's K and V format, and the classes that follow.
bool decide_formats(struct plan *plan, const struct plan_options *options, struct error *err);

// sinks.c: how many sink pages each layer has, by the formats of the other pages.
struct kv_formats;
bool decide_sinks(struct plan *plan, const struct plan_options *options, const struct kv_formats *formats, int *pages,
                  struct error *err);

// transform.c: what keys are stored as. Needs the formats.
bool decide_transforms(struct plan *plan, const struct plan_options *options, struct error *err);
bool decide_leaves_out(const struct plan *plan, const struct op *op);

// kernels.c: a kernel for each op and load.
bool decide_kernels(struct plan *plan, const struct plan_options *options, struct error *err);

// Whether a row failed its self-test before this plan.
bool decide_has_failed(const struct plan_options *options, const struct kernel *kernel);

// fuse.c: the ops that a neighbour's kernel does.
void decide_fusion(struct plan *plan);

// weights.c: where weights lie, and the scratch memory that kernels want.
void decide_weights(struct plan *plan);

// memory.c: how long and how many sequences.
bool decide_memory(struct plan *plan, const struct plan_options *options, struct error *err);

// next.c: a cache format to try next.
void decide_next(struct plan *plan, const struct plan_options *options);

// Whether a kv plan's file says what this flag would say, so that the two cannot stand beside each other.
bool decide_is_in_kv_plan(const char *flag);

// All of them, without looking for alternatives.
bool decide_all(struct plan *plan, const struct model *model, const struct device *device,
                const struct plan_options *options, struct error *err);

// refuse.c: writes down a refusal; always returns false. The reason becomes the sentence.
bool refuse(struct plan *plan, struct error *err, const char *flag, const char *value, const char *reason);

// Finds alternatives that would run, by planning them, and adds them to plan->refusal and to *err.
void refuse_find_alternatives(struct plan *plan, const struct plan_options *options, struct error *err);

// Candidates and alternatives of a refusal, as lines of *err.
void refuse_print_lists(const struct plan *plan, struct error *err);

// "0-3, 7" of the layers that are marked.
const char *decide_layer_list(struct plan *plan, const bool *marked);

#endif
