// SPDX-License-Identifier: Apache-2.0
// plan/kernels.c: a kernel for each op and load: what each op asks for, rows that the user asks for by name, and the
// refusal where no row fits. plan/bind.c picks the rows.
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/suggest.h"
#include "kernel/cuda/images.h"
#include "model/tensor_source.h"
#include "plan/bind.h"
#include "plan/decide.h"
#include "plan/fit.h"

enum { ROWS_MAX = 4096 };

// The format of a layer's sink pages, if it has any.
static uint64_t sink_of(const struct plan *plan, int layer)
{
    int index = plan->layer[layer].sink_class;
    return index == PLAN_NO_CLASS ? 0 : (uint64_t)1 << plan->classes[index].layout.k.dtype;
}

// Returns what an op asks of a kernel for one of its matrices, or for all of them: a GPU has a row for each format, and
// a CPU's row does all matrices of an op.
static struct fit_request request_of(const struct plan *plan, const struct op *op, int matrix)
{
    bool each = plan->device.kind == DEVICE_CUDA;
    struct fit_request request;
    memset(&request, 0, sizeof request); // requests are compared byte by byte
    request.op = op->kind;
    for (int i = each ? matrix : 0; i < (each ? matrix + 1 : op->matrices) && op->matrices; i++) {
        request.weights |= (uint64_t)1 << op->matrix[i].tensor->dtype;
        request.rows[each ? 0 : i] = (int)tensor_rows(op->matrix[i].tensor);
        request.cols = (int)tensor_cols(op->matrix[i].tensor);
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
    const struct layer *layer = op->layer < 0 ? NULL : &plan->model->layer[op->layer];
    if (op->kind == OP_TRANSFORM || op->kind == OP_ROPE)
        request.k_dim = request.v_dim = layer->head_dim;
    request.rotary_behind = op->kind == OP_ROPE && layer->latent;
    if (op->kind == OP_NORM)
        request.x = plan_value_bytes(plan, op->in) == sizeof(float) ? DTYPE_BIT(F32) : DTYPE_BIT(BF16);
    if (op->kind == OP_CONV)
        request.conv_kernel = layer->state.inputs + 1;
    if (op->kind == OP_SSM_SCAN || op->kind == OP_GATED_DELTA) {
        request.keys = layer->state.keys;
        request.mixed = plan->model->buffer_width[op->in];
    }
    return request;
}

bool decide_has_failed(const struct plan_options *options, const struct kernel *kernel)
{
    for (int i = 0; options->failed && options->failed[i]; i++)
        if (options->failed[i] == kernel)
            return true;
    return false;
}

static struct plan_op bind_op(struct bind *bind, const struct plan *plan, const struct op *op)
{
    struct plan_op bound = { 0 };
    for (int i = 0; i == 0 || i < op->matrices; i++) {
        struct fit_request request = request_of(plan, op, i);
        request.int8 = plan->int8_activations;
        const struct bind_rows *rows = bind_request(bind, &request, op->layer);
        for (int load = 0; load < KERNEL_LOADS; load++)
            bound.rows[load][i] = rows->row[load];
    }
    return bound;
}

// ---- a pinned kernel ----

// Why the row fits none of the model's ops, as said of the first. NULL: it fits.
static const char *fits_nowhere(struct plan *plan, const struct kernel *kernel)
{
    const char *first = NULL;
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        if (op->kind != kernel->op || decide_leaves_out(plan, op))
            continue;
        for (int j = 0; j == 0 || j < op->matrices; j++) {
            struct fit_request request = request_of(plan, op, j);
            const char *reason = fit_reasons(kernel, &request, &plan->device, &plan->arena);
            if (!reason)
                return NULL;
            first = first ? first : reason;
        }
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
    fail_usage(err, "%s: there is no \"%.60s\"%s%s%s; those that fit are%s", bind_pin_flag(op), name,
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

// Why no row of any op is for the device.
static const char *why_no_kernels(struct plan *plan)
{
    const struct device *device = &plan->device;
    const char *listed = "";
    if (device->note[0])
        return device->note;
    if (device->kind != DEVICE_CUDA)
        return device->kind == DEVICE_NONE ? "there is no device to run on" : "this build has no kernel for it";
    if (cuda_is_listed(cuda_all_architectures, device->sm))
        return arena_format(&plan->arena, "this build holds no sm_%d code: build with -Dcuda-archs=%d%s", device->sm,
                            device->sm, cuda_is_listed(cuda_wgmma_architectures, device->sm) ? "a" : "");
    for (const int *sm = cuda_all_architectures; *sm; sm++)
        listed = arena_format(&plan->arena, "%s%ssm_%d", listed, *listed ? ", " : "", *sm);
    return arena_format(&plan->arena, "nibble has no kernels for it; it has them for %s", listed);
}

static bool is_bound(const struct plan_op *bound, const struct op *op)
{
    for (int i = 0; i == 0 || i < op->matrices; i++)
        if (!bound->rows[0][i])
            return false;
    return true;
}

// Every row of the op that failed first, with its reasons, and the layers it failed for.
static void name_candidates(struct plan *plan, enum op_kind kind)
{
    struct plan_refusal *refusal = &plan->refusal;
    refusal->candidates = ARENA_NEW(&plan->arena, struct plan_reason, plan->reason_count);
    for (int i = 0; i < plan->reason_count; i++)
        if (plan->reasons[i].kernel->op == kind)
            refusal->candidates[refusal->candidate_count++] = plan->reasons[i];
    int layers = plan->model->config.layers;
    bool *unbound = ARENA_NEW(&plan->arena, bool, layers);
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        if (op->kind == kind && op->layer >= 0)
            unbound[op->layer] |= !is_bound(&plan->ops[i], op);
    }
    refusal->layers = decide_layer_list(plan, unbound);
}

static bool refuse_no_kernel(struct plan *plan, const struct plan_options *options, const struct kernel *pinned,
                             const struct op *op, struct error *err)
{
    name_candidates(plan, op->kind);
    const struct device *device = &plan->device;
    if (!device_has_kernels(device))
        return refuse(plan, err, "--device", device->word, why_no_kernels(plan));
    bool about_cache = op->kind == OP_ATTENTION || op->kind == OP_KV_WRITE;
    const char *reason = arena_format(&plan->arena, "no %s kernel for layers %s on %s", op_word(op->kind),
                                      plan->refusal.layers, plan->device.word);
    if (pinned && op->kind == pinned->op)
        return refuse(plan, err, bind_pin_flag(op->kind), pinned->name, reason);
    if (about_cache && sink_of(plan, op->layer) && options->user.kv_sink_pages)
        return refuse(plan, err, "--kv-sink-pages", options->user.kv_sink_pages, reason);
    return refuse(
        plan, err, about_cache ? "--kv-cache-dtype" : "--device",
        about_cache ? options->user.kv_cache_dtype ? options->user.kv_cache_dtype : "auto" : plan->device.word, reason);
}

// A row stands where nothing runs, so that readers of a plan find one.
static void leave_out(struct plan_op *bound, const struct op *op)
{
    *bound = (struct plan_op){ .left_out = true };
    for (int load = 0; load < KERNEL_LOADS; load++)
        for (int i = 0; kernel_loads_of(op->kind) >> load & 1 && (i == 0 || i < op->matrices); i++)
            bound->rows[load][i] = kernel_reference(op->kind);
}

bool decide_kernels(struct plan *plan, const struct plan_options *options, struct error *err)
{
    const struct model *model = plan->model;
    const struct kernel *attention, *linear;
    const struct op *unbound = NULL;
    if (!find_pinned(plan, OP_ATTENTION, options->user.attention_kernel, &attention, err)
        || !find_pinned(plan, OP_LINEAR, options->user.linear_kernel, &linear, err))
        return false;
    const char *nowhere = linear ? fits_nowhere(plan, linear) : NULL;
    if (nowhere)
        return refuse(plan, err, bind_pin_flag(OP_LINEAR), linear->name,
                      arena_format(&plan->arena, "it fits no linear layer on %s: it %s", plan->device.word, nowhere));
    struct bind bind = { .plan = plan, .options = options, .attention = attention, .linear = linear };
    plan->ops = ARENA_NEW(&plan->arena, struct plan_op, model->op_count);
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        if (decide_leaves_out(plan, op)) {
            leave_out(&plan->ops[i], op);
            continue;
        }
        plan->ops[i] = bind_op(&bind, plan, op);
        bool first_of_cache = !unbound || (unbound->kind != OP_ATTENTION && op->kind == OP_ATTENTION);
        if (!is_bound(&plan->ops[i], op) && first_of_cache) // a refusal about the cache says more than any other
            unbound = op;
    }
    bind_note_reasons(&bind);
    return !unbound || refuse_no_kernel(plan, options, unbound->kind == OP_LINEAR ? linear : attention, unbound, err);
}
