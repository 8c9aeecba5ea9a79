// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

#include <math.h>

#include "model/flow.h"
#include "plan/op_args.h"
#include "plan/op_shape.h"

double plan_experts_bytes(const struct plan *plan)
{
    const struct model *model = plan->model;
    double bytes = 0;
    for (int i = 0; i < model->op_count; i++)
        for (int j = 0; j < model->ops[i].matrices && model->ops[i].kind == OP_EXPERTS; j++)
            bytes += (double)plan_placed_bytes(model->ops[i].matrix[j].tensor, plan_packing(plan, i, j));
    return bytes;
}

static int tokens_of(const struct plan_step *step)
{
    int tokens = 0;
    for (int i = 0; i < step->group_count; i++)
        tokens += step->groups[i].sequences * step->groups[i].tokens;
    return tokens;
}

static int rows_each(const struct plan_step *step)
{
    int most = 0;
    for (int i = 0; i < step->group_count; i++)
        most = step->groups[i].tokens > most ? step->groups[i].tokens : most;
    return most;
}

// ---- weights ----

// Returns the share of a matrix that is read: the rows of these tokens in an embedding table, and the experts that are
// likely to be chosen, if each token chooses at random.
static double read_share(const struct model *model, const struct op *op, const struct tensor *matrix, double tokens)
{
    const struct model_experts *experts = &model->config.experts;
    if (op->kind == OP_EMBED)
        return fmin(1, tokens / (double)matrix->shape[0]);
    return op->kind == OP_EXPERTS ? 1 - pow(1 - (double)experts->top_k / experts->count, tokens) : 1;
}

static double vector_bytes(const struct tensor *tensor) { return tensor ? (double)tensor->bytes : 0; }

static double weight_bytes(const struct plan *plan, int index, double tokens)
{
    const struct op *op = &plan->model->ops[index];
    const struct plan_op *bound = &plan->ops[index];
    double bytes = vector_bytes(op->vector);
    for (int i = 0; i < OP_VECTORS_MAX; i++)
        bytes += vector_bytes(op->more[i]);
    for (int i = 0; i < op->matrices; i++) {
        const struct tensor *matrix = op->matrix[i].tensor;
        bool packed = bound->placed_at[i] != PLAN_IN_FILE;
        bytes += (double)plan_placed_bytes(matrix, packed ? plan_packing(plan, index, i) : NULL)
                * read_share(plan->model, op, matrix, tokens)
            + vector_bytes(op->matrix[i].bias);
    }
    return bytes;
}

// Returns the share of a matrix's values that one token is multiplied with.
static double multiplied_share(const struct model *model, const struct op *op)
{
    const struct model_experts *experts = &model->config.experts;
    return op->kind == OP_EXPERTS ? (double)experts->top_k / experts->count : 1;
}

static void add_products(const struct plan *plan, int index, int load, double rows, struct plan_cost *cost)
{
    const struct op *op = &plan->model->ops[index];
    if (op->kind == OP_EMBED) // looks rows up
        return;
    for (int i = 0; i < op->matrices; i++) {
        const struct tensor *matrix = op->matrix[i].tensor;
        const struct kernel *row = plan->ops[index].rows[load][i];
        int planes = kernel_int8_planes(row, matrix->dtype);
        double products = (double)tensor_values(matrix) * multiplied_share(plan->model, op) * rows;
        *(planes ? &cost->int8_ops : &cost->flops) += 2 * products * (planes ? planes : 1);
    }
}

// ---- what layers keep ----

// How much of the context a token at this position sees, itself included.
static int seen_from(const struct layer *layer, int position)
{
    return layer->window && layer->window <= position ? layer->window : position + 1;
}

// A sequence's state is read and written once.
static void add_state(const struct layer *layer, const struct plan_load_group *group, struct plan_cost *cost)
{
    cost->read_bytes += 2.0 * (double)layer->state.layer_bytes * group->sequences;
}

static void add_attention(const struct plan *plan, int index, const struct plan_load_group *group,
                          struct plan_cost *cost)
{
    const struct layer *layer = &plan->model->layer[index];
    double seen = 0;
    for (int i = 0; i < group->tokens; i++)
        seen += seen_from(layer, group->depth + i);
    int dims = layer->head_dim + (layer->latent ? layer->latent : layer->head_dim);
    cost->flops += 2.0 * layer->heads * dims * seen * group->sequences; // scores and sums, a multiply-add each
    cost->read_bytes += (double)plan_layer_token_bytes(plan, index) * seen_from(layer, group->depth + group->tokens - 1)
        * group->sequences;
}

static void add_context(const struct plan *plan, const struct op *op, const struct plan_step *step,
                        struct plan_cost *cost)
{
    for (int i = 0; i < step->group_count; i++)
        if (op->kind == OP_ATTENTION)
            add_attention(plan, op->layer, &step->groups[i], cost);
        else if (op->kind == OP_SSM_SCAN || op->kind == OP_GATED_DELTA)
            add_state(&plan->model->layer[op->layer], &step->groups[i], cost);
}

// ---- activations ----

// Counts the values of an operand in `rows` rows. Where it holds the parts of all ranks, only the op's width counts;
// all_reduce reads as many of every rank.
static double count_values(const struct plan *plan, const struct op *op, const struct operand_use *use, double rows)
{
    if (use->operand->rows != WHOLE)
        return rows * (double)use->width;
    return use->type == VALUE_F32 ? rows * op->width * (op->kind == OP_ALL_REDUCE ? plan->model->shard.ranks : 1) : 0;
}

// Each input and result once, in the bytes of its buffer; what is fused goes through memory only as the fused ops do.
static double activation_bytes(const struct plan *plan, int index, const union op_args *args, int load, double rows)
{
    const struct op *op = &plan->model->ops[index];
    struct op_results results = plan_op_results(plan, index, load);
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(op->kind, (void *)args, uses);
    double bytes = 0;
    enum buffer buffer;
    for (int i = 0; i < count; i++)
        if (flow_reads(op, uses[i].operand) && flow_buffer(op, uses[i].operand, uses[i].matrix, &buffer))
            bytes += count_values(plan, op, &uses[i], rows) * (double)plan_value_bytes(plan, buffer);
    for (int i = 0; i < results.count; i++)
        bytes += rows * (double)op_result_width(&results.item[i])
            * (double)plan_value_bytes(plan, results.item[i].buffer);
    if (op->kind == OP_KV_WRITE)
        bytes += rows * (double)plan_layer_token_bytes(plan, op->layer);
    return bytes;
}

// ---- sums ----

struct plan_cost plan_op_cost(const struct plan *plan, int index, const struct plan_step *step)
{
    const struct op *op = &plan->model->ops[index];
    double tokens = tokens_of(step), rows = op->on_outputs ? step->outputs : tokens;
    if (plan->ops[index].left_out)
        return (struct plan_cost){ 0 };
    int load = plan_op_load(plan, index, &(struct plan_rows){ (int)tokens, step->outputs, rows_each(step) });
    union op_args args;
    plan_op_args(plan, index, &args);
    struct plan_cost cost = { .read_bytes = weight_bytes(plan, index, tokens),
                              .flops = op_flops(op->kind, &args) * rows,
                              .activation_bytes = activation_bytes(plan, index, &args, load, rows) };
    add_products(plan, index, load, rows, &cost);
    add_context(plan, op, step, &cost);
    return cost;
}

struct plan_cost plan_cost(const struct plan *plan, int sequences, int depth, int tokens)
{
    const struct plan_load_group group = { sequences, depth, tokens };
    const struct plan_step step = { .groups = &group, .group_count = 1, .outputs = sequences };
    struct plan_cost sum = { 0 };
    for (int i = 0; i < plan->model->op_count; i++) {
        struct plan_cost cost = plan_op_cost(plan, i, &step);
        sum.read_bytes += cost.read_bytes;
        sum.flops += cost.flops;
        sum.int8_ops += cost.int8_ops;
        sum.activation_bytes += cost.activation_bytes;
    }
    return sum;
}
