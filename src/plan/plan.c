// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "plan/decide.h"
#include "plan/kv_plan.h"

static bool in_range(const char *flag, int value, int high, struct error *err)
{
    return (value >= 0 && value <= high) || fail_usage(err, "%s %d: 1 to %d is possible", flag, value, high);
}

static bool check_options(const struct plan *plan, const struct plan_options *options, struct error *err)
{
    int context = plan->model->config.context;
    if (options->user.max_model_len > context)
        return fail(err, "a context of %d tokens was asked for; the model has %d at most", options->user.max_model_len,
                    context);
    return in_range("--max-model-len", options->user.max_model_len, context, err)
        && in_range("--max-num-seqs", options->user.max_num_seqs, PLAN_SEQUENCES_MAX, err)
        && in_range("--max-num-batched-tokens", options->user.batch_tokens, PLAN_BATCH_TOKENS_MAX, err)
        && in_range("--mamba-block-size", options->user.mamba_block_size, PLAN_STATE_TOKENS_ASKED_MAX, err)
        && (options->user.mamba_block_size % KV_PAGE_TOKENS == 0
            || fail_usage(err, "--mamba-block-size %d: multiples of %d are possible", options->user.mamba_block_size,
                          KV_PAGE_TOKENS));
}

// Returns the default tokens of a step. A rank on a CPU keeps all rows of a step in its own caches, where the threads
// of one process share them, so that half as many rows are read faster; but all sequences must have room in a step.
static int usual_tokens(const struct plan *plan)
{
    bool half = plan->model->shard.ranks && plan->device.kind == DEVICE_CPU
        && plan->max_num_seqs <= PLAN_BATCH_TOKENS / 2;
    return half ? PLAN_BATCH_TOKENS / 2 : PLAN_BATCH_TOKENS;
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
    plan->max_num_seqs = options->user.max_num_seqs ? options->user.max_num_seqs : 1;
    plan->batch_tokens = options->user.batch_tokens ? options->user.batch_tokens : usual_tokens(plan);
    plan->outputs = output_rows(plan);
    if (!check_options(plan, options, err) || !decide_formats(plan, options, err)
        || !decide_transforms(plan, options, err) || !decide_kernels(plan, options, err))
        return false;
    if (!options->apart)
        decide_fusion(plan);
    return decide_memory(plan, options, err);
}

static void note_failed(struct plan *plan, const struct kernel *const *failed)
{
    for (int i = 0; failed && failed[i]; i++)
        plan->failed_note = arena_format(&plan->arena, "%s%s%s", plan->failed_note ? plan->failed_note : "",
                                         i ? ", " : "", failed[i]->name);
}

// Flags whose place a kv plan's file takes. Beside the file they would have to be weighed against it.
static const struct {
    const char *flag;
    size_t offset; // in struct plan_options
} in_kv_plan[] = { { "--kv-cache-dtype", offsetof(struct plan_options, user.kv_cache_dtype) },
                   { "--kv-cache-dtype-skip-layers", offsetof(struct plan_options, user.kv_cache_dtype_skip_layers) },
                   { "--kv-transform", offsetof(struct plan_options, user.kv_transform) },
                   { "--kv-scale", offsetof(struct plan_options, user.kv_scale) },
                   { "--kv-sink-pages", offsetof(struct plan_options, user.kv_sink_pages) } };

bool decide_is_in_kv_plan(const char *flag)
{
    for (size_t i = 0; i < sizeof in_kv_plan / sizeof *in_kv_plan; i++)
        if (!strcmp(in_kv_plan[i].flag, flag))
            return true;
    return false;
}

static bool check_alone(const struct plan_options *options, struct error *err)
{
    for (size_t i = 0; i < sizeof in_kv_plan / sizeof *in_kv_plan; i++) {
        const char *value = *(const char *const *)((const char *)options + in_kv_plan[i].offset);
        if (value && *value)
            return fail_usage(err, "--kv-plan says what %s would say; leave one of them out", in_kv_plan[i].flag);
    }
    return true;
}

// Sets the options that a kv plan's file gives, in the place of flags.
static bool apply_kv_plan(struct plan_options *options, const struct model *model, struct arena *texts,
                          struct error *err)
{
    struct file file;
    struct kv_plan found;
    if (!check_alone(options, err) || !file_open(&file, options->user.kv_plan, err))
        return false;
    bool ok = kv_plan_read(file.content, texts, &found, err);
    file_close(&file);
    if (!ok)
        return fail_within(err, "--kv-plan %s", options->user.kv_plan);
    if (strcmp(found.architecture, model->config.architecture) || found.layers != model->config.layers)
        return fail(err, "--kv-plan %s is for a %s of %d layers, and this model is a %s of %d; run `nibble tune` on it",
                    options->user.kv_plan, found.architecture, found.layers, model->config.architecture,
                    model->config.layers);
    options->user.kv_cache_dtype = found.kv_cache_dtype;
    options->user.kv_transform = found.kv_transform;
    options->user.kv_scale = found.kv_scale;
    options->user.kv_sink_pages = found.kv_sink_pages;
    return true;
}

// Decides an accepted plan again with the calibration that it wants.
static bool calibrate(struct plan *plan, struct plan_options *options, struct error *err)
{
    const struct model *model = plan->model;
    const struct device device = plan->device;
    if (!plan->wants_calibration || !options->find_calibration)
        return true;
    if (!options->find_calibration(options->find_context, plan, &options->calibration, err))
        return false;
    plan_free(plan);
    return decide_all(plan, model, &device, options, err);
}

bool plan_make(struct plan *plan, const struct model *model, const struct device *device,
               const struct plan_options *options, struct error *err)
{
    struct plan_options effective = *options;
    struct arena said = { 0 };
    *plan = (struct plan){ 0 };
    bool accepted = (!options->user.kv_plan || apply_kv_plan(&effective, model, &said, err))
        && decide_all(plan, model, device, &effective, err) && calibrate(plan, &effective, err);
    plan->said = said;
    note_failed(plan, options->failed);
    if (accepted) {
        decide_next(plan, &effective);
        return true;
    }
    effective.find_calibration = NULL; // not for alternatives
    if (plan->refusal.flag)
        refuse_find_alternatives(plan, &effective, err);
    return false;
}

void plan_free(struct plan *plan)
{
    free(plan->reasons);
    arena_free(&plan->arena);
    arena_free(&plan->said);
    *plan = (struct plan){ 0 };
}

size_t plan_value_bytes(const struct plan *plan, enum buffer buffer)
{
    bool routes = buffer >= BUFFER_ROUTER && buffer <= BUFFER_FIRST;
    bool wide = buffer == BUFFER_X || buffer >= BUFFER_LAST || routes;
    return plan->device.kind == DEVICE_CUDA && !wide ? sizeof(uint16_t) : sizeof(float);
}

int plan_buffer_rows(const struct plan *plan, enum buffer buffer)
{
    if (buffer == BUFFER_FIRST)
        return 1; // of a step, not of a token
    return buffer >= BUFFER_LAST && buffer != BUFFER_PARTIAL ? plan->outputs : plan->batch_tokens;
}

size_t plan_layer_token_bytes(const struct plan *plan, int layer)
{
    bool has_tokens = plan->model->layer[layer].kind == LAYER_ATTENTION;
    return has_tokens ? kv_layout_token_bytes(&plan->classes[plan->layer[layer].class_index].layout) : 0;
}

size_t plan_cache_tokens(const struct plan *plan) { return (size_t)(plan->max_model_len * plan->concurrency); }

const struct plan_class *plan_states(const struct plan *plan)
{
    for (int i = 0; i < plan->class_count; i++)
        if (plan->classes[i].kind.state)
            return &plan->classes[i];
    return NULL;
}

size_t plan_token_bytes(const struct plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->model->config.layers; i++)
        bytes += plan_layer_token_bytes(plan, i);
    return bytes;
}
