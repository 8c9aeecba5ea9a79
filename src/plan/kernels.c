// SPDX-License-Identifier: Apache-2.0
// plan/kernels.c: a kernel for each op: the fitting row of the highest priority; every other row leaves its reason.
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/suggest.h"
#include "kernel/cuda/images.h"
#include "model/tensor_source.h"
#include "plan/decide.h"
#include "plan/fit.h"

enum { ROWS_MAX = 4096 };

// The format of a layer's first pages, if they are kept apart.
static uint64_t sink_of(const struct plan *plan, int layer)
{
    int index = plan->layer[layer].sink_class;
    return index == PLAN_NO_CLASS ? 0 : (uint64_t)1 << plan->classes[index].layout.k.dtype;
}

static struct fit_request request_of(const struct plan *plan, const struct op *op, enum kernel_load load)
{
    struct fit_request request = { .op = op->kind, .load = load };
    for (int i = 0; i < op->matrices; i++) {
        request.weights |= (uint64_t)1 << op->matrix[i].tensor->dtype;
        request.rows[i] = (int)tensor_rows(op->matrix[i].tensor);
    }
    if (op->kind == OP_KV_WRITE || op->kind == OP_ATTENTION) {
        const struct kv_layout *layout = &plan->classes[plan->layer[op->layer].class_index].layout;
        request.has_cache = true;
        request.k = layout->k.dtype;
        request.v = layout->v.dtype;
        request.latent = layout->latent;
        request.sink = sink_of(plan, op->layer);
        request.k_dim = layout->k.dim;
        request.v_dim = layout->v.dim;
    }
    if (op->kind == OP_TRANSFORM)
        request.k_dim = request.v_dim = plan->model->layer[op->layer].head_dim;
    return request;
}

// Runs of layers with the same reason are kept as one entry.
static void keep_reason(struct plan *plan, const struct kernel *kernel, int layer, const char *text)
{
    for (int i = plan->reason_count - 1; i >= 0; i--) {
        struct plan_reason *known = &plan->reasons[i];
        bool adjacent = known->last_layer == layer || (layer > 0 && known->last_layer == layer - 1);
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

bool decide_has_failed(const struct plan_options *options, const struct kernel *kernel)
{
    for (int i = 0; options->failed && options->failed[i]; i++)
        if (options->failed[i] == kernel)
            return true;
    return false;
}

// What a choice depends on besides the op.
struct choice {
    const struct plan_options *options;
    const struct kernel *pinned;  // NULL: none
    const struct kernel *partner; // the row for the op's other number of tokens, which reads the same weights, or NULL
};

static const char *pin_flag(enum op_kind op) { return op == OP_LINEAR ? "--linear-kernel" : "--attention-kernel"; }

// Whether another row was asked for in this one's place. One for linears need not fit all of them.
static bool is_displaced(struct plan *plan, const struct kernel *pinned, const struct kernel *kernel,
                         const struct fit_request *request)
{
    if (!pinned || pinned == kernel || pinned->op != kernel->op || !(pinned->load & request->load))
        return false;
    return pinned->op != OP_LINEAR || !fit_reasons(pinned, request, &plan->device, &plan->arena);
}

// Why this row is not to be used for the request, or NULL.
static const char *reason_against(struct plan *plan, const struct choice *choice, const struct kernel *kernel,
                                  const struct fit_request *request)
{
    const struct kernel *pinned = choice->pinned, *partner = choice->partner;
    const char *reason = fit_reasons(kernel, request, &plan->device, &plan->arena);
    if (!reason && decide_has_failed(choice->options, kernel))
        reason = "failed its self-test on this machine";
    if (!reason && is_displaced(plan, pinned, kernel, request))
        reason = arena_format(&plan->arena, "%s %s was asked for", pin_flag(kernel->op), pinned->name);
    if (!reason && kernel->nvfp4 && pinned != kernel)
        reason = arena_format(&plan->arena, "rounds activations to 4 bits, which %s %s asks for", pin_flag(kernel->op),
                              kernel->name);
    if (!reason && partner && partner->packing != kernel->packing)
        reason = arena_format(&plan->arena, "reads weights in another order than %s", partner->name);
    return reason;
}

static const struct kernel *choose_kernel(struct plan *plan, const struct choice *choice, const struct op *op,
                                          enum kernel_load load)
{
    struct fit_request request = request_of(plan, op, load);
    request.no_int8 = choice->options->no_int8_activations;
    const struct kernel *best = NULL;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        if (kernel->op != op->kind)
            continue;
        const char *reason = reason_against(plan, choice, kernel, &request);
        if (reason)
            keep_reason(plan, kernel, op->layer, reason);
        else if (!best || kernel->priority > best->priority)
            best = kernel;
    }
    for (const struct kernel *kernel = kernel_next(NULL); kernel && best; kernel = kernel_next(kernel))
        if (kernel->op == op->kind && kernel != best && !reason_against(plan, choice, kernel, &request))
            keep_reason(plan, kernel, op->layer, arena_format(&plan->arena, "%s has priority", best->name));
    return best;
}

// Both kernels of an op read its weights, so they want them in the same order. Where there is no such pair, the weights
// stay as they lie in the file, which the reference reads.
static struct plan_op choose_pair(struct plan *plan, struct choice choice, const struct op *op)
{
    struct plan_op pair = { .decode = choose_kernel(plan, &choice, op, KERNEL_DECODE) };
    choice.partner = pair.decode;
    pair.prefill = choose_kernel(plan, &choice, op, KERNEL_PREFILL);
    if (!pair.decode || pair.prefill || !pair.decode->packing)
        return pair;
    choice.partner = kernel_reference(op->kind);
    return (struct plan_op){ .decode = choose_kernel(plan, &choice, op, KERNEL_DECODE),
                             .prefill = choose_kernel(plan, &choice, op, KERNEL_PREFILL) };
}

// ---- a pinned kernel ----

// Why the row fits none of the model's ops, at the number of tokens it is for, as said of the first. NULL: it fits.
static const char *fits_nowhere(struct plan *plan, const struct kernel *kernel)
{
    const char *first = NULL;
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        if (op->kind != kernel->op || decide_leaves_out(plan, op))
            continue;
        struct fit_request request = request_of(plan, op,
                                                kernel->load & KERNEL_DECODE ? KERNEL_DECODE : KERNEL_PREFILL);
        const char *reason = fit_reasons(kernel, &request, &plan->device, &plan->arena);
        if (!reason)
            return NULL;
        first = first ? first : reason;
    }
    return first ? first : "the model has no such op";
}

static bool unknown_kernel(struct plan *plan, enum op_kind op, const char *name, struct error *err)
{
    const char *names[ROWS_MAX];
    size_t count = 0;
    struct strbuf fitting = { 0 };
    for (const struct kernel *kernel = kernel_next(NULL); kernel && count < ROWS_MAX; kernel = kernel_next(kernel)) {
        if (kernel->op != op)
            continue;
        names[count++] = kernel->name;
        if (!fits_nowhere(plan, kernel))
            strbuf_add_format(&fitting, " %s", kernel->name);
    }
    const char *near = suggest(bytes_of(name), names, count);
    fail_usage(err, "%s: there is no \"%.60s\"%s%s%s; those that fit are%s", pin_flag(op), name,
               near ? ", did you mean " : "", near ? near : "", near ? "?" : "", fitting.len ? fitting.data : " none");
    strbuf_free(&fitting);
    return false;
}

static bool find_pinned(struct plan *plan, enum op_kind op, const char *name, const struct kernel **out,
                        struct error *err)
{
    *out = NULL;
    if (!name)
        return true;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        if (kernel->op == op && !strcmp(kernel->name, name))
            *out = kernel;
    return *out || unknown_kernel(plan, op, name, err);
}

// ---- no kernel ----

static bool device_has_kernels(const struct device *device)
{
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        if (kernel->device == device->kind
            && (device->kind != DEVICE_CUDA || cuda_runs_on(kernel->architectures, device)))
            return true;
    return false;
}

// Every row of the op that failed first and of this kind of device, with its reasons, and the layers it failed for.
static void name_candidates(struct plan *plan, enum op_kind kind)
{
    struct plan_refusal *refusal = &plan->refusal;
    refusal->candidates = ARENA_NEW(&plan->arena, struct plan_reason, plan->reason_count);
    for (int i = 0; i < plan->reason_count; i++)
        if (plan->reasons[i].kernel->op == kind && plan->reasons[i].kernel->device == plan->device.kind)
            refusal->candidates[refusal->candidate_count++] = plan->reasons[i];
    int layers = plan->model->config.layers;
    bool *unbound = ARENA_NEW(&plan->arena, bool, layers);
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        if (op->kind == kind && op->layer >= 0)
            unbound[op->layer] |= !plan->ops[i].decode || !plan->ops[i].prefill;
    }
    refusal->layers = decide_layer_list(plan, unbound);
}

static bool refuse_no_kernel(struct plan *plan, const struct plan_options *options, const struct kernel *pinned,
                             const struct op *op, struct error *err)
{
    name_candidates(plan, op->kind);
    const struct device *device = &plan->device;
    if (!device_has_kernels(device))
        return refuse(plan, err, "--device", device->word,
                      device->note[0]                   ? device->note
                          : device->kind == DEVICE_NONE ? "there is no device to run on"
                                                        : "this build has no kernel for it");
    bool about_cache = op->kind == OP_ATTENTION || op->kind == OP_KV_WRITE;
    const char *reason = arena_format(&plan->arena, "no %s kernel for layers %s on %s", op_word(op->kind),
                                      plan->refusal.layers, plan->device.word);
    if (pinned && op->kind == pinned->op)
        return refuse(plan, err, pin_flag(op->kind), pinned->name, reason);
    if (about_cache && sink_of(plan, op->layer) && options->kv_sink_pages)
        return refuse(plan, err, "--kv-sink-pages", options->kv_sink_pages, reason);
    return refuse(plan, err, about_cache ? "--kv-cache-dtype" : "--device",
                  about_cache ? options->kv_cache_dtype ? options->kv_cache_dtype : "auto" : plan->device.word, reason);
}

bool decide_kernels(struct plan *plan, const struct plan_options *options, struct error *err)
{
    const struct model *model = plan->model;
    const struct kernel *attention, *linear;
    const struct op *unbound = NULL;
    if (!find_pinned(plan, OP_ATTENTION, options->attention_kernel, &attention, err)
        || !find_pinned(plan, OP_LINEAR, options->linear_kernel, &linear, err))
        return false;
    const char *nowhere = linear ? fits_nowhere(plan, linear) : NULL;
    if (nowhere)
        return refuse(plan, err, pin_flag(OP_LINEAR), linear->name,
                      arena_format(&plan->arena, "it fits no linear layer on %s: it %s", plan->device.word, nowhere));
    plan->ops = ARENA_NEW(&plan->arena, struct plan_op, model->op_count);
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        if (decide_leaves_out(plan, op)) {
            const struct kernel *any = kernel_reference(op->kind);
            plan->ops[i] = (struct plan_op){ .decode = any, .prefill = any, .left_out = true };
            continue;
        }
        struct choice choice = { .options = options, .pinned = op->kind == OP_LINEAR ? linear : attention };
        plan->ops[i] = choose_pair(plan, choice, op);
        bool bound = plan->ops[i].decode && plan->ops[i].prefill;
        bool first_of_cache = !unbound || (unbound->kind != OP_ATTENTION && op->kind == OP_ATTENTION);
        if (!bound && first_of_cache) // a refusal about the cache says more than one about anything else
            unbound = op;
    }
    return !unbound || refuse_no_kernel(plan, options, unbound->kind == OP_LINEAR ? linear : attention, unbound, err);
}
