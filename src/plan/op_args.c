// SPDX-License-Identifier: Apache-2.0
#include "plan/op_args.h"

#include "model/tensor_source.h"

size_t plan_rank_stride(const struct plan *plan, enum buffer buffer)
{
    int ranks = plan->model->shard.ranks ? plan->model->shard.ranks : 1;
    return (size_t)plan_buffer_rows(plan, buffer) * (size_t)(plan->model->buffer_width[buffer] / ranks);
}

// An expression of the table's second column may use these.
struct known {
    const struct plan *plan;
    const struct model *model;
    const struct model_config *config;
    const struct layer *layer; // NULL: the op is outside the layers
    const struct op *op;
};

#define is_f32(buffer) (plan_value_bytes(plan, buffer) == sizeof(float))
#define rank_stride(buffer) plan_rank_stride(plan, buffer)
#define SET(member, planned, drawn) a->member = planned;
#define SET_OWN(member, planned) a->member = planned;
#define SET_NUMBERS(id, word, ...)                                             \
    static void set_##word(const struct known *known, union op_args *out)      \
    {                                                                          \
        struct word##_args *a = &out->word;                                    \
        const struct plan *plan = known->plan;                                 \
        const struct model *model = known->model;                              \
        const struct model_config *config = known->config;                     \
        const struct layer *layer = known->layer;                              \
        const struct op *op = known->op;                                       \
        (void)a, (void)plan, (void)model, (void)config, (void)layer, (void)op; \
        id##_NUMBERS(SET, SET_OWN)                                             \
    }
OPS(SET_NUMBERS)

#define ENTRY(id, word, ...) [OP_##id] = set_##word,
static void (*const setters[OP_COUNT])(const struct known *, union op_args *) = { OPS(ENTRY) };

static void set_shape(const struct op_matrix *matrix, struct weight *out)
{
    out->dtype = matrix->tensor->dtype;
    out->rows = (int)tensor_rows(matrix->tensor);
    out->cols = (int)tensor_cols(matrix->tensor);
}

void plan_op_args(const struct plan *plan, int index, union op_args *out)
{
    const struct model *model = plan->model;
    const struct op *op = &model->ops[index];
    const struct layer *layer = op->layer < 0 ? NULL : &model->layer[op->layer];
    struct operand_use uses[OP_OPERANDS_MAX];
    *out = (union op_args){ 0 };
    setters[op->kind](&(struct known){ plan, model, &model->config, layer, op }, out);
    int count = op_operands(op->kind, out, uses);
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == ROLE_WEIGHT)
            set_shape(&op->matrix[uses[i].matrix], uses[i].member);
}
