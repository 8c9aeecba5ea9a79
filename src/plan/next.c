// SPDX-License-Identifier: Apache-2.0
// plan/next.c: the cache format to try next: the one with fewest bytes that would run here, with what it saves and what
// it costs in quality.
#include "plan/decide.h"

// KL divergence from a float32 cache, as planned, on SmolLM2-135M and prose (doc/quality.md).
static const struct {
    enum dtype dtype;
    double divergence;
} measured[] = { { DTYPE_NVFP4, 0.027 }, { DTYPE_FP8_E4M3, 0.005 } };

enum { WORTH_TENTHS = 12 }; // a format that fits less than 1.2 x the tokens is not suggested

static bool suggest(struct plan *plan, const struct plan_options *options, enum dtype dtype, double divergence)
{
    struct plan attempt;
    struct error ignored;
    struct plan_options smaller = *options;
    smaller.user.kv_cache_dtype = dtype_word(dtype);
    smaller.user.max_model_len = plan->max_model_len;
    bool accepted = decide_all(&attempt, plan->model, &plan->device, &smaller, &ignored);
    double now = (double)plan_sequence_bytes(plan, plan->max_model_len);
    double then = accepted ? (double)plan_sequence_bytes(&attempt, plan->max_model_len) : now;
    plan_free(&attempt);
    if (10 * now < WORTH_TENTHS * then)
        return false;
    plan->next = (struct plan_next){ "--kv-cache-dtype", dtype_word(dtype), now / then, divergence };
    return true;
}

void decide_next(struct plan *plan, const struct plan_options *options)
{
    bool found = options->user.kv_plan; // which was chosen by measuring
    for (size_t i = 0; i < sizeof measured / sizeof *measured && !found; i++)
        found = suggest(plan, options, measured[i].dtype, measured[i].divergence);
}
