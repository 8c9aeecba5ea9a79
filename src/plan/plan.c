// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "kv/table.h"
#include "plan/fit.h"
#include "plan/kv_flag.h"

// ---- cache formats and classes ------------------------------------------------------------------------------------

static bool same_side(const struct kv_side *a, const struct kv_side *b)
{
    return a->dtype == b->dtype && a->heads == b->heads && a->dim == b->dim;
}

static int find_class(const struct plan *plan, const struct plan_class *wanted)
{
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        if (class->window == wanted->window && same_side(&class->layout.k, &wanted->layout.k)
            && same_side(&class->layout.v, &wanted->layout.v))
            return i;
    }
    return -1;
}

// Puts a layer into the class of its kind, which may be new.
static bool place_layer(struct plan *plan, int index, const struct kv_formats *formats, struct error *err)
{
    const struct layer *layer = &plan->model->layer[index];
    const char *misfit = kv_format_misfit(&plan->arena, formats->k, layer->head_dim);
    if (!misfit)
        misfit = kv_format_misfit(&plan->arena, formats->v, layer->head_dim);
    if (misfit)
        return fail(err, "--kv-cache-dtype: layer %d: %s", index, misfit);
    struct plan_class wanted = {
        .window = layer->window,
        .layout = kv_layout_make(formats->k, formats->v, layer->kv_heads, layer->head_dim, layer->head_dim),
    };
    int found = find_class(plan, &wanted);
    if (found < 0 && plan->class_count == KV_CLASSES_MAX)
        return fail(err, "--kv-cache-dtype: the layers fall into more than %d kinds of pages; use fewer formats",
                    KV_CLASSES_MAX);
    if (found < 0)
        plan->classes[found = plan->class_count++] = wanted;
    struct plan_class *class = &plan->classes[found];
    plan->layer[index] = (struct plan_layer){ .class_index = found, .offset = class->page_bytes };
    class->page_bytes += class->layout.layer_bytes;
    class->layers++;
    return true;
}

static bool place_layers(struct plan *plan, const char *flag, struct error *err)
{
    int layers = plan->model->config.layers;
    struct kv_formats *formats = ARENA_NEW(&plan->arena, struct kv_formats, layers);
    plan->layer = ARENA_NEW(&plan->arena, struct plan_layer, layers);
    if (!kv_flag_parse(flag ? flag : "auto", layers, plan->model->config.kv_dtype, formats, err))
        return false;
    for (int i = 0; i < layers; i++)
        if (!place_layer(plan, i, &formats[i], err))
            return false;
    return true;
}

// ---- kernels ------------------------------------------------------------------------------------------------------

static struct fit_request request_of(const struct plan *plan, const struct op *op, enum kernel_load load)
{
    struct fit_request request = { .op = op->kind, .load = load };
    for (int i = 0; i < op->matrices; i++)
        request.weights |= (uint64_t)1 << op->matrix[i].tensor->dtype;
    if (op->kind == OP_KV_WRITE || op->kind == OP_ATTENTION) {
        const struct kv_layout *layout = &plan->classes[plan->layer[op->layer].class_index].layout;
        request.has_cache = true;
        request.k = layout->k.dtype;
        request.v = layout->v.dtype;
        request.head_dim = layout->k.dim;
    }
    return request;
}

// Runs of layers with the same reason are kept as one entry.
static void keep_reason(struct plan *plan, const struct kernel *kernel, int layer, const char *text)
{
    for (int i = plan->reason_count - 1; i >= 0; i--) {
        struct plan_reason *known = &plan->reasons[i];
        bool adjacent = known->last_layer == layer || known->last_layer == layer - 1;
        if (known->kernel == kernel && adjacent && !strcmp(known->text, text)) {
            known->last_layer = layer;
            return;
        }
    }
    if (plan->reason_count == plan->reason_capacity) {
        plan->reason_capacity = plan->reason_capacity ? plan->reason_capacity * 2 : 16;
        plan->reasons = memory_grow(plan->reasons, (size_t)plan->reason_capacity, sizeof *plan->reasons);
    }
    plan->reasons[plan->reason_count++] = (struct plan_reason){ kernel, layer, layer, text };
}

// The fitting kernel of the highest priority; the others leave their reasons.
static const struct kernel *choose_kernel(struct plan *plan, const struct op *op, enum kernel_load load)
{
    struct fit_request request = request_of(plan, op, load);
    const struct kernel *best = NULL;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        if (kernel->op != op->kind)
            continue;
        const char *reason = fit_reason(kernel, &request, &plan->device, &plan->arena);
        if (reason)
            keep_reason(plan, kernel, op->layer, reason);
        else if (!best || kernel->priority > best->priority)
            best = kernel;
    }
    return best;
}

static bool choose_kernels(struct plan *plan, struct error *err)
{
    const struct model *model = plan->model;
    plan->ops = ARENA_NEW(&plan->arena, struct plan_op, model->op_count);
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        plan->ops[i] = (struct plan_op){ choose_kernel(plan, op, KERNEL_FEW), choose_kernel(plan, op, KERNEL_MANY) };
        if (plan->ops[i].few && plan->ops[i].many)
            continue;
        const struct plan_reason *last = plan->reason_count ? &plan->reasons[plan->reason_count - 1] : NULL;
        return fail(err, "no kernel for op %s of layer %d on %s (%s %s)", op_word(op->kind), op->layer,
                    plan->device.word, last ? last->kernel->name : "none is compiled", last ? last->text : "in");
    }
    return true;
}

// ---- memory -------------------------------------------------------------------------------------------------------

void plan_weights_by_format(const struct model *model, size_t *bytes)
{
    struct map seen = { 0 };
    memset(bytes, 0, DTYPE_COUNT * sizeof *bytes);
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        const struct tensor *used[2 * LINEAR_OUTPUTS_MAX + 1] = { op->vector };
        for (int j = 0; j < op->matrices; j++) {
            used[1 + 2 * j] = op->matrix[j].tensor;
            used[2 + 2 * j] = op->matrix[j].bias;
        }
        for (size_t j = 0; j < sizeof used / sizeof *used; j++) {
            int64_t ignored;
            if (!used[j] || map_get(&seen, bytes_of(used[j]->name), &ignored))
                continue;
            map_put(&seen, bytes_of(used[j]->name), 1);
            bytes[used[j]->dtype] += used[j]->bytes;
        }
    }
    map_free(&seen);
}

static size_t workspace_bytes(const struct plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < BUFFER_COUNT; i++) {
        size_t rows = (size_t)(i == BUFFER_LAST || i == BUFFER_LOGITS ? plan->outputs : plan->batch_tokens);
        bytes += rows * (size_t)plan->model->buffer_width[i] * sizeof(float);
    }
    return bytes;
}

// Pages of each class for max_num_seqs sequences of `length` tokens; returns their bytes, SIZE_MAX for more than that.
static size_t size_pools(struct plan *plan, int length)
{
    size_t bytes = 0, of_class;
    for (int i = 0; i < plan->class_count; i++) {
        struct plan_class *class = &plan->classes[i];
        int of_sequence = kv_table_pages_needed(class->window, length, plan->batch_tokens);
        if (__builtin_mul_overflow(of_sequence, plan->max_num_seqs, &class->pages)
            || __builtin_mul_overflow((size_t)class->pages, class->page_bytes, &of_class)
            || __builtin_add_overflow(bytes, of_class, &bytes))
            return SIZE_MAX;
    }
    return bytes;
}

// The longest sequence whose pools fit into `room`, 0 when not even a page does.
static int longest_fit(struct plan *plan, size_t room)
{
    int low = 0, high = plan->model->config.context;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (size_pools(plan, middle) <= room)
            low = middle;
        else
            high = middle - 1;
    }
    return low < plan->model->config.context ? low / KV_PAGE_TOKENS * KV_PAGE_TOKENS : low; // whole pages
}

static bool size_memory(struct plan *plan, int asked_length, struct error *err)
{
    size_t by_format[DTYPE_COUNT];
    plan_weights_by_format(plan->model, by_format);
    for (int i = 0; i < DTYPE_COUNT; i++)
        plan->weight_bytes += by_format[i];
    plan->workspace_bytes = workspace_bytes(plan);
    size_t fixed = plan->weight_bytes + plan->workspace_bytes, memory = plan->device.memory_bytes;
    int longest = longest_fit(plan, memory > fixed ? memory - fixed : 0);
    int context = plan->model->config.context;
    plan->max_model_len = asked_length ? asked_length : longest ? longest : context;
    if (plan->max_model_len > longest)
        return fail(err,
                    "%d tokens of context do not fit: weights take %zu MiB, workspace %zu MiB and the cache %zu MiB of "
                    "the %zu MiB that %s has; the largest that fits is %s%d",
                    plan->max_model_len, plan->weight_bytes >> 20, plan->workspace_bytes >> 20,
                    size_pools(plan, plan->max_model_len) >> 20, memory >> 20,
                    plan->device.word, longest ? "--max-model-len " : "", longest);
    if (!asked_length && longest < context)
        plan->length_note = arena_format(&plan->arena, "the model's %d tokens do not fit in memory", context);
    plan->pool_bytes = size_pools(plan, plan->max_model_len);
    return true;
}

// ---- the plan -----------------------------------------------------------------------------------------------------

static bool in_range(const char *flag, int value, int high, struct error *err)
{
    return (value >= 0 && value <= high) || fail_usage(err, "%s %d: 1 to %d is possible", flag, value, high);
}

static bool decide(struct plan *plan, const struct plan_options *options, struct error *err)
{
    int context = plan->model->config.context;
    if (options->max_model_len > context)
        return fail(err, "a context of %d tokens was asked for; the model has %d at most", options->max_model_len,
                    context);
    return in_range("--max-model-len", options->max_model_len, context, err)
        && in_range("--max-num-seqs", options->max_num_seqs, PLAN_SEQUENCES_MAX, err)
        && in_range("--max-num-batched-tokens", options->batch_tokens, PLAN_BATCH_TOKENS_MAX, err)
        && place_layers(plan, options->kv_cache_dtype, err)
        && choose_kernels(plan, err)
        && size_memory(plan, options->max_model_len, err);
}

bool plan_make(struct plan *plan, const struct model *model, const struct device *device,
               const struct plan_options *options, struct error *err)
{
    *plan = (struct plan){ .model = model, .device = *device };
    plan->max_num_seqs = options->max_num_seqs ? options->max_num_seqs : 1;
    plan->batch_tokens = options->batch_tokens ? options->batch_tokens : PLAN_BATCH_TOKENS;
    plan->outputs = plan->batch_tokens < PLAN_OUTPUTS_MAX ? plan->batch_tokens : PLAN_OUTPUTS_MAX;
    if (decide(plan, options, err))
        return true;
    plan_free(plan);
    return false;
}

void plan_free(struct plan *plan)
{
    free(plan->reasons);
    arena_free(&plan->arena);
    *plan = (struct plan){ 0 };
}

size_t plan_layer_token_bytes(const struct plan *plan, int layer)
{
    return kv_layout_token_bytes(&plan->classes[plan->layer[layer].class_index].layout);
}
