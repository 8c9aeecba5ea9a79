// SPDX-License-Identifier: Apache-2.0
#include "plan/op_shape.h"

#include <stdlib.h>
#include <string.h>

static const char *const buffer_words[BUFFER_COUNT] = {
    [BUFFER_X] = "x",
    [BUFFER_H] = "h",
    [BUFFER_Q] = "q",
    [BUFFER_K] = "k",
    [BUFFER_V] = "v",
    [BUFFER_A] = "a",
    [BUFFER_Q_RANK] = "q_rank",
    [BUFFER_Q_HEADS] = "q_heads",
    [BUFFER_MIX] = "mix",
    [BUFFER_MIXED] = "mixed",
    [BUFFER_TIME] = "dt",
    [BUFFER_BETA] = "beta",
    [BUFFER_GATE] = "gate",
    [BUFFER_UP] = "up",
    [BUFFER_ROUTER] = "router",
    [BUFFER_EXPERT] = "expert",
    [BUFFER_SHARE] = "weight",
    [BUFFER_PAIR] = "pair",
    [BUFFER_FIRST] = "first",
    [BUFFER_NARROW] = "narrow",
    [BUFFER_SLOTS] = "slots",
    [BUFFER_SHARED] = "shared",
    [BUFFER_LAST] = "last",
    [BUFFER_LOGITS] = "logits",
    [BUFFER_PARTIAL] = "partial",
    [BUFFER_LOGITS_PART] = "logits_part",
};

const char *buffer_word(enum buffer buffer) { return buffer_words[buffer]; }

bool buffer_holds_integers(enum buffer buffer)
{
    return buffer == BUFFER_EXPERT || buffer == BUFFER_PAIR || buffer == BUFFER_FIRST;
}

int plan_op_load(const struct plan *plan, int index, const struct plan_rows *rows)
{
    const struct op *op = &plan->model->ops[index];
    if (plan->device.kind != DEVICE_CUDA)
        return kernel_load_of(rows->tokens);
    return kernel_load_of(kernel_walks_sequences(op->kind) ? rows->each
                              : op->on_outputs             ? rows->outputs
                                                           : rows->tokens);
}

// ---- results ----

static void add_result(struct op_results *results, enum buffer buffer, int slots, int width)
{
    results->item[results->count++] = (struct op_result){ buffer, slots, width };
}

// Matrices of experts are (experts, rows, cols).
static void add_products(const struct op *op, int slots, struct op_results *out)
{
    for (int i = 0; i < op->matrices; i++) {
        const struct tensor *tensor = op->matrix[i].tensor;
        add_result(out, op->matrix[i].out, slots, (int)tensor->shape[tensor->rank == 3 ? 1 : 0]);
    }
}

static void add_rotated(const struct model *model, const struct op *op, bool with_keys, struct op_results *out)
{
    const struct layer *layer = &model->layer[op->layer];
    add_result(out, op->in, 0, layer->heads * layer->head_dim);
    if (with_keys)
        add_result(out, op->second, 0, layer->kv_heads * layer->head_dim);
}

static struct op_results own_results(const struct model *model, const struct op *op)
{
    struct op_results out = { 0 };
    const struct layer *layer = op->layer < 0 ? NULL : &model->layer[op->layer];
    switch (op->kind) {
    case OP_LINEAR: add_products(op, 0, &out); break;
    case OP_EXPERTS: add_products(op, model->config.experts.chosen, &out); break;
    case OP_NORM: add_result(&out, op->out, 0, op->groups * op->width + op->rest); break;
    case OP_PER_HEAD_LINEAR:
        add_result(&out, op->out, 0, (int)op->matrix[0].tensor->shape[0] + op->groups * op->rest);
        break;
    case OP_ROPE:
    case OP_TRANSFORM: add_rotated(model, op, true, &out); break;
    case OP_ATTENTION:
        add_result(&out, op->out, 0, layer->heads * (layer->latent ? layer->latent : layer->head_dim));
        break;
    case OP_ROUTE:
        add_result(&out, BUFFER_EXPERT, 0, model->config.experts.chosen);
        add_result(&out, BUFFER_SHARE, 0, model->config.experts.chosen);
        break;
    case OP_CONV: add_result(&out, op->out, 0, layer->state.channels); break;
    case OP_SSM_SCAN:
    case OP_GATED_DELTA: add_result(&out, op->out, 0, layer->state.heads * layer->state.values); break;
    case OP_SOFTCAP: add_result(&out, op->in, 0, op->width); break;
    case OP_KV_WRITE: break;
    default: add_result(&out, op->out, 0, op->width);
    }
    return out;
}

// The nearest op of that kind, from this one on in that direction: the neighbour that is fused.
static const struct op *find_neighbour(const struct model *model, int op, int direction, enum op_kind kind)
{
    while (model->ops[op].kind != kind)
        op += direction;
    return &model->ops[op];
}

struct op_results plan_op_results(const struct plan *plan, int op, int load)
{
    const struct model *model = plan->model;
    uint32_t fuses = plan->ops[op].fuses[load];
    struct op_results out = { 0 };
    if (fuses & KERNEL_FUSES_ACT_MUL)
        return own_results(model, find_neighbour(model, op, 1, OP_ACT_MUL));
    if (fuses & KERNEL_FUSES_ADD)
        return own_results(model, find_neighbour(model, op, 1, OP_ADD));
    if (fuses & (KERNEL_FUSES_ROPE | KERNEL_FUSES_TRANSFORM)) { // of which keys go to the cache and nowhere else
        enum op_kind kind = fuses & KERNEL_FUSES_ROPE ? OP_ROPE : OP_TRANSFORM;
        add_rotated(model, find_neighbour(model, op, -1, kind), false, &out);
        return out;
    }
    return own_results(model, &model->ops[op]);
}

size_t plan_op_inputs(const struct plan *plan, int index)
{
    const struct model *model = plan->model;
    const struct op *op = &model->ops[index];
    const struct layer *layer = op->layer < 0 ? NULL : &model->layer[op->layer];
    size_t chosen = (size_t)model->config.experts.chosen, width = (size_t)op->width;
    switch (op->kind) {
    case OP_EMBED: return 0;
    case OP_NORM: return width * (size_t)op->groups;
    case OP_PER_HEAD_LINEAR: return (width + (size_t)op->rest) * (size_t)op->groups;
    case OP_ROPE:
    case OP_TRANSFORM: return (size_t)(layer->heads + layer->kv_heads) * (size_t)layer->head_dim;
    case OP_KV_WRITE: return (size_t)layer->kv_heads * (size_t)layer->head_dim * (layer->latent ? 1 : 2);
    case OP_ATTENTION: return (size_t)layer->heads * (size_t)layer->head_dim;
    case OP_ACT_MUL:
    case OP_ADD: return 2 * width;
    case OP_EXPERTS: // what an activation gave is there for each slot
        return op->in == BUFFER_GATE ? chosen * width : width;
    case OP_COMBINE: return chosen * width;
    case OP_SSM_SCAN:
    case OP_GATED_DELTA: return (size_t)model->buffer_width[op->in] + (size_t)model->buffer_width[op->second];
    case OP_ALL_REDUCE: return width * (size_t)model->shard.ranks;
    default: return width;
    }
}

// ---- names ----

void plan_op_name(const struct plan *plan, int index, struct strbuf *out)
{
    const struct op *ops = plan->model->ops, *op = &ops[index];
    int number = 1;
    for (int i = 0; i < index; i++)
        number += ops[i].layer == op->layer && ops[i].kind == op->kind && !plan->ops[i].left_out;
    if (op->layer >= 0)
        strbuf_add_format(out, "%d.", op->layer);
    strbuf_add_format(out, "%s", op_word(op->kind));
    if (number > 1)
        strbuf_add_format(out, "%d", number);
}

static void list_layer(const struct plan *plan, int layer, struct strbuf *out)
{
    for (int i = 0; i < plan->model->op_count; i++)
        if (plan->model->ops[i].layer == layer && !plan->ops[i].left_out) {
            strbuf_add_format(out, "%s", out->len ? ", " : "");
            plan_op_name(plan, i, out);
        }
}

// The names of the layer that was meant, or of the first.
static bool list_names(const struct plan *plan, const char *name, struct error *err)
{
    struct strbuf layer = { 0 }, outside = { 0 };
    int layers = plan->model->config.layers;
    char *end;
    long meant = strtol(name, &end, 10);
    meant = end != name && meant >= 0 && meant < layers ? meant : 0;
    list_layer(plan, (int)meant, &layer);
    list_layer(plan, -1, &outside);
    fail(err, "no op is called \"%s\"; there are %s, and in layer %ld of 0 to %d: %s", name, strbuf_text(&outside),
         meant, layers - 1, strbuf_text(&layer));
    strbuf_free(&layer);
    strbuf_free(&outside);
    return false;
}

bool plan_op_find(const struct plan *plan, const char *name, int *out, struct error *err)
{
    struct strbuf own = { 0 };
    bool found = false;
    for (int i = 0; i < plan->model->op_count && !found; i++) {
        own.len = 0;
        plan_op_name(plan, i, &own);
        found = !plan->ops[i].left_out && !strcmp(strbuf_text(&own), name);
        *out = i;
    }
    strbuf_free(&own);
    return found || list_names(plan, name, err);
}
