// SPDX-License-Identifier: Apache-2.0
#include "plan/op_shape.h"

#include <stdlib.h>
#include <string.h>

#include "model/flow.h"
#include "plan/op_args.h"

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
    [BUFFER_DT] = "dt",
    [BUFFER_BETA] = "beta",
    [BUFFER_GATE] = "gate",
    [BUFFER_UP] = "up",
    [BUFFER_ROUTER] = "router",
    [BUFFER_EXPERT] = "expert",
    [BUFFER_EXPERT_WEIGHT] = "weight",
    [BUFFER_PAIR] = "pair",
    [BUFFER_FIRST] = "first",
    [BUFFER_EXPERT_LATENT] = "latent",
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

// The buffers that an op writes, but for orders of which more than one is right.
static struct op_results own_results(const struct plan *plan, int index)
{
    const struct op *op = &plan->model->ops[index];
    struct op_results out = { 0 };
    union op_args args;
    struct operand_use uses[OP_OPERANDS_MAX];
    plan_op_args(plan, index, &args);
    int count = op_operands(op->kind, &args, uses), slots = op->kind == OP_EXPERTS ? op->groups : 0;
    for (int i = 0; i < count; i++) {
        enum operand_role role = uses[i].operand->role;
        enum buffer buffer;
        if (role_writes(role) && role != ROLE_INDEX && flow_buffer(op, uses[i].operand, uses[i].matrix, &buffer))
            out.item[out.count++] = (struct op_result){ buffer, slots, (int)uses[i].width / (slots ? slots : 1) };
    }
    return out;
}

// The nearest op of that kind, from this one on in that direction: the neighbour that is fused.
static int find_neighbour(const struct model *model, int op, int direction, enum op_kind kind)
{
    while (model->ops[op].kind != kind)
        op += direction;
    return op;
}

struct op_results plan_op_results(const struct plan *plan, int op, int load)
{
    const struct model *model = plan->model;
    uint32_t fuses = plan->ops[op].fuses[load];
    if (fuses & KERNEL_FUSES_ACT_MUL)
        return own_results(plan, find_neighbour(model, op, 1, OP_ACT_MUL));
    if (fuses & KERNEL_FUSES_ADD)
        return own_results(plan, find_neighbour(model, op, 1, OP_ADD));
    if (fuses & (KERNEL_FUSES_ROPE | KERNEL_FUSES_TRANSFORM)) { // of which keys go to the cache and nowhere else
        enum op_kind kind = fuses & KERNEL_FUSES_ROPE ? OP_ROPE : OP_TRANSFORM;
        struct op_results queries = own_results(plan, find_neighbour(model, op, -1, kind));
        queries.count = 1;
        return queries;
    }
    return own_results(plan, op);
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
