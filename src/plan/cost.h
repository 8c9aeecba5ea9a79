// SPDX-License-Identifier: Apache-2.0
// plan/cost.h: the roofline's numerators: the least that an op, or a step, costs by a plan: what it must move through
// memory, and what it must compute in the numbers that its kernels use.
#ifndef PLAN_COST_H
#define PLAN_COST_H

#include "plan/plan.h"

struct plan_cost {
    double read_bytes; // weights once, of experts those likely to be chosen, and what the cache holds of every sequence
    double flops;      // of matrix products and attention; a multiply-add is two
    double int8_ops;   // the same of matrix products whose activations are 8-bit integers
    double activation_bytes; // what ops read and write between each other, and what they add to the cache: a step whose
                             // activations stay in a processor's caches does without
};

// Sequences that are alike in a step: each has `depth` tokens in the cache, of which `tokens` more are read.
struct plan_load_group {
    int sequences, depth, tokens;
};

struct plan_step {
    const struct plan_load_group *groups;
    int group_count;
    int outputs; // rows of logits
};

struct plan_cost plan_op_cost(const struct plan *plan, int op, const struct plan_step *step);

// The sum over all ops. `sequences` sequences with `depth` tokens in the cache, of which `tokens` more are read, with
// logits after the last.
struct plan_cost plan_cost(const struct plan *plan, int sequences, int depth, int tokens);

// Returns the bytes of all experts' matrices, as they are placed.
double plan_experts_bytes(const struct plan *plan);

#endif
