// SPDX-License-Identifier: Apache-2.0
// plan/fuse.c: kernel fusion. Decides which ops the kernel of a neighbour does as well, so that a step has fewer
// launches and its results make fewer trips through memory. A kernel says what it can fuse; this file checks that the
// list of ops allows it: the neighbour must be next to it, fit together with it, and no other op may read a result that
// is no longer written.
#include "model/flow.h"
#include "plan/decide.h"

static bool can_norm(const struct model *model, int i, int neighbour)
{
    const struct op *linear = &model->ops[i], *norm = &model->ops[neighbour];
    return norm->kind == OP_NORM && norm->groups == 1 && norm->out == linear->in && norm->in != norm->out
        && (norm->in == BUFFER_X || norm->in == BUFFER_LAST) && norm->on_outputs == linear->on_outputs
        && !flow_is_read(model, i, norm->out);
}

static bool can_act_mul(const struct model *model, int i, int neighbour)
{
    const struct op *linear = &model->ops[i], *act = &model->ops[neighbour];
    return act->kind == OP_ACT_MUL && act->activation != ACT_CLAMPED && linear->matrices == 2
        && act->in == linear->matrix[0].out && act->second == linear->matrix[1].out
        && !flow_is_read(model, neighbour, linear->matrix[1].out);
}

static bool can_add(const struct model *model, int i, int neighbour)
{
    const struct op *linear = &model->ops[i], *add = &model->ops[neighbour];
    return add->kind == OP_ADD && linear->matrices == 1 && add->in == linear->matrix[0].out && add->out == BUFFER_X
        && !flow_is_read(model, neighbour, add->in);
}

static bool can_rope(const struct model *model, int i, int neighbour)
{
    const struct op *write = &model->ops[i], *rope = &model->ops[neighbour];
    return rope->kind == OP_ROPE && rope->second == write->in && rope->layer == write->layer;
}

static bool can_transform(const struct model *model, int i, int neighbour)
{
    const struct op *write = &model->ops[i], *transform = &model->ops[neighbour];
    return transform->kind == OP_TRANSFORM && transform->second == write->in && transform->layer == write->layer;
}

// In the order in which they are looked for: the nearer neighbour first.
static const struct {
    uint32_t flag;
    int step; // to the neighbour
    bool (*possible)(const struct model *model, int i, int neighbour);
} ways[] = {
    { KERNEL_FUSES_NORM, -1, can_norm }, { KERNEL_FUSES_ACT_MUL, 1, can_act_mul },
    { KERNEL_FUSES_ADD, 1, can_add },    { KERNEL_FUSES_TRANSFORM, -1, can_transform },
    { KERNEL_FUSES_ROPE, -1, can_rope },
};

// Returns the next op in a direction, past those that are left out or fused already.
static int neighbour_of(const struct plan *plan, int i, int step, int load)
{
    do
        i += step;
    while (i >= 0 && i < plan->model->op_count && (plan->ops[i].left_out || plan->ops[i].fused[load]));
    return i;
}

// Returns the fusions that all rows of an op can do at a load.
static uint32_t fuses_of(const struct plan *plan, int i, int load)
{
    const struct plan_op *bound = &plan->ops[i];
    uint32_t fuses = bound->rows[load][0]->fuses;
    for (int j = 1; j < plan->model->ops[i].matrices; j++)
        fuses &= bound->rows[load][j]->fuses;
    return fuses;
}

static void fuse_at(struct plan *plan, int i, int load)
{
    uint32_t fuses = fuses_of(plan, i, load);
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        int neighbour = neighbour_of(plan, i, ways[way].step, load);
        if (!(fuses & ways[way].flag) || neighbour < 0 || neighbour >= plan->model->op_count
            || !ways[way].possible(plan->model, i, neighbour))
            continue;
        plan->ops[i].fuses[load] |= ways[way].flag;
        plan->ops[neighbour].fused[load] = true;
    }
}

void decide_fusion(struct plan *plan)
{
    for (int i = 0; i < plan->model->op_count; i++)
        for (int load = 0; load < KERNEL_LOADS; load++)
            if (plan->ops[i].rows[load][0])
                fuse_at(plan, i, load);
}
