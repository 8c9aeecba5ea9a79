// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <stdlib.h>

#include "plan/decide.h"

static bool in_range(const char *flag, int value, int high, struct error *err)
{
    return (value >= 0 && value <= high) || fail_usage(err, "%s %d: 1 to %d is possible", flag, value, high);
}

static bool check_options(const struct plan *plan, const struct plan_options *options, struct error *err)
{
    int context = plan->model->config.context;
    if (options->max_model_len > context)
        return fail(err, "a context of %d tokens was asked for; the model has %d at most", options->max_model_len,
                    context);
    return in_range("--max-model-len", options->max_model_len, context, err)
        && in_range("--max-num-seqs", options->max_num_seqs, PLAN_SEQUENCES_MAX, err)
        && in_range("--max-num-batched-tokens", options->batch_tokens, PLAN_BATCH_TOKENS_MAX, err);
}

// One for each sequence that runs, enough to score a text at a good pace, and no more than a step has tokens.
static int output_rows(const struct plan *plan)
{
    int rows = plan->max_num_seqs < PLAN_OUTPUTS_MAX ? plan->max_num_seqs : PLAN_OUTPUTS_MAX;
    rows = rows > PLAN_OUTPUTS_MIN ? rows : PLAN_OUTPUTS_MIN;
    return rows < plan->batch_tokens ? rows : plan->batch_tokens;
}

bool decide_all(struct plan *plan, const struct model *model, const struct device *device,
                const struct plan_options *options, struct error *err)
{
    *plan = (struct plan){ .model = model, .device = *device };
    plan->max_num_seqs = options->max_num_seqs ? options->max_num_seqs : 1;
    plan->batch_tokens = options->batch_tokens ? options->batch_tokens : PLAN_BATCH_TOKENS;
    plan->outputs = output_rows(plan);
    if (!check_options(plan, options, err) || !decide_formats(plan, options, err)
        || !decide_kernels(plan, options, err))
        return false;
    decide_absorbing(plan);
    return decide_memory(plan, options, err);
}

static void note_failed(struct plan *plan, const struct kernel *const *failed)
{
    for (int i = 0; failed && failed[i]; i++)
        plan->failed_note = arena_format(&plan->arena, "%s%s%s", plan->failed_note ? plan->failed_note : "",
                                         i ? ", " : "", failed[i]->name);
}

bool plan_make(struct plan *plan, const struct model *model, const struct device *device,
               const struct plan_options *options, struct error *err)
{
    bool accepted = decide_all(plan, model, device, options, err);
    note_failed(plan, options->failed);
    if (accepted)
        return true;
    if (plan->refusal.flag)
        refuse_find_alternatives(plan, options, err);
    return false;
}

void plan_free(struct plan *plan)
{
    free(plan->reasons);
    arena_free(&plan->arena);
    *plan = (struct plan){ 0 };
}

size_t plan_value_bytes(const struct plan *plan, enum buffer buffer)
{
    bool routes = buffer >= BUFFER_ROUTER && buffer <= BUFFER_FIRST;
    bool wide = buffer == BUFFER_X || buffer == BUFFER_LAST || buffer == BUFFER_LOGITS || routes;
    return plan->device.kind == DEVICE_CUDA && !wide ? sizeof(uint16_t) : sizeof(float);
}

int plan_buffer_rows(const struct plan *plan, enum buffer buffer)
{
    if (buffer == BUFFER_FIRST)
        return 1; // of a step, not of a token
    return buffer == BUFFER_LAST || buffer == BUFFER_LOGITS ? plan->outputs : plan->batch_tokens;
}

size_t plan_layer_token_bytes(const struct plan *plan, int layer)
{
    return kv_layout_token_bytes(&plan->classes[plan->layer[layer].class_index].layout);
}

size_t plan_token_bytes(const struct plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->model->config.layers; i++)
        bytes += plan_layer_token_bytes(plan, i);
    return bytes;
}
