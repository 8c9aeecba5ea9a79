// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

#include <math.h>

static bool uses_whole(const struct op *op, const struct tensor *tensor)
{
    for (int i = 0; i < op->matrices; i++)
        if (op->kind != OP_EMBED && op->matrix[i].tensor == tensor)
            return true;
    return false;
}

// Of a table that only looks up tokens, all but their rows.
static double unread_bytes(const struct model *model, double tokens)
{
    double bytes = 0;
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        const struct tensor *table = op->kind == OP_EMBED ? op->matrix[0].tensor : NULL;
        for (int j = 0; table && j < model->op_count; j++)
            if (uses_whole(&model->ops[j], table))
                table = NULL;
        if (table && (double)table->shape[0] > tokens)
            bytes += (double)table->bytes * (1 - tokens / (double)table->shape[0]);
    }
    return bytes;
}

double plan_experts_bytes(const struct plan *plan)
{
    const struct model *model = plan->model;
    double bytes = 0;
    for (int i = 0; i < model->op_count; i++)
        for (int j = 0; j < model->ops[i].matrices && model->ops[i].kind == OP_EXPERTS; j++)
            bytes += (double)plan_placed_bytes(model->ops[i].matrix[j].tensor, plan->ops[i].decode->packing);
    return bytes;
}

// Of experts, what nobody is likely to choose, if each token chooses at random.
static double idle_bytes(const struct plan *plan, double tokens)
{
    const struct model_experts *experts = &plan->model->config.experts;
    if (!experts->count)
        return 0;
    return plan_experts_bytes(plan) * pow(1 - (double)experts->chosen / experts->count, tokens);
}

// Of a tensor's values, those that one token is multiplied with.
static double share_of(const struct model *model, const struct op *op)
{
    const struct model_experts *experts = &model->config.experts;
    return op->kind == OP_EXPERTS ? (double)experts->chosen / experts->count : 1;
}

static void add_products(const struct plan *plan, double tokens, double outputs, struct plan_cost *cost)
{
    const struct model *model = plan->model;
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        const struct kernel *kernel = tokens > KERNEL_DECODE_ROWS_MAX ? plan->ops[i].prefill : plan->ops[i].decode;
        bool multiplies = op->kind == OP_LINEAR || op->kind == OP_EXPERTS || op->kind == OP_PER_HEAD_LINEAR;
        for (int j = 0; multiplies && j < op->matrices; j++) {
            const struct tensor *matrix = op->matrix[j].tensor;
            bool int8 = kernel->int8 >> matrix->dtype & 1;
            *(int8 ? &cost->int8_ops : &cost->flops) += 2 * (double)tensor_values(matrix) * share_of(model, op)
                * (op->on_outputs ? outputs : tokens);
        }
    }
}

// How much of the context a token at this position sees, itself included.
static int seen_from(const struct layer *layer, int position)
{
    return layer->window && layer->window <= position ? layer->window : position + 1;
}

// Each token decays, adds to and reads its sequence's state, which is read and written once.
static void add_state(const struct layer *layer, double tokens, int sequences, struct plan_cost *cost)
{
    cost->flops += 5.0 * layer->state.heads * layer->state.keys * layer->state.values * tokens;
    cost->read_bytes += 2.0 * (double)layer->state.layer_bytes * sequences;
}

struct plan_cost plan_cost(const struct plan *plan, int sequences, int depth, int tokens)
{
    const struct model *model = plan->model;
    double all_tokens = (double)sequences * tokens;
    struct plan_cost cost = { .read_bytes = (double)plan->weight_bytes - unread_bytes(model, all_tokens)
                                  - idle_bytes(plan, all_tokens) };
    add_products(plan, all_tokens, sequences, &cost);
    for (int i = 0; i < model->config.layers; i++) {
        const struct layer *layer = &model->layer[i];
        if (layer->kind == LAYER_STATE)
            add_state(layer, all_tokens, sequences, &cost);
        if (layer->kind != LAYER_ATTENTION)
            continue;
        double seen = 0;
        for (int j = 0; j < tokens; j++)
            seen += seen_from(layer, depth + j);
        int dims = layer->head_dim + (layer->latent ? layer->latent : layer->head_dim);
        cost.flops += 2.0 * layer->heads * dims * seen * sequences; // scores and sums, a multiply-add each
        cost.read_bytes += (double)plan_layer_token_bytes(plan, i) * seen_from(layer, depth + tokens - 1) * sequences;
    }
    return cost;
}
