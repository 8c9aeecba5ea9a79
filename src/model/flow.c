// SPDX-License-Identifier: Apache-2.0
#include "model/flow.h"

bool flow_buffer(const struct op *op, const struct operand *operand, int matrix, enum buffer *out)
{
    switch (operand->slot) {
    case SLOT_IN: *out = op->in; return true;
    case SLOT_SECOND: *out = op->second; return true;
    case SLOT_THIRD: *out = op->third; return true;
    case SLOT_OUT: *out = op->out; return true;
    case SLOT_EXPERT:
    case SLOT_EXPERT_WEIGHT:
    case SLOT_PAIR:
    case SLOT_FIRST: *out = op->routes + (enum buffer)(operand->slot - SLOT_EXPERT); return true;
    case SLOT_MATRIX: *out = op->matrix[matrix].out; return operand->role != ROLE_WEIGHT;
    default: return false;
    }
}

bool flow_reads(const struct op *op, const struct operand *operand)
{
    return role_reads(operand->role) || (operand->role == ROLE_SUM && op->adds);
}

static bool is_operand(const struct op *op, const struct operand *operand, enum buffer buffer)
{
    enum buffer own;
    for (int i = 0; i < (operand->each ? op->matrices : 1); i++)
        if (flow_buffer(op, operand, i, &own) && own == buffer)
            return true;
    return false;
}

bool flow_is_read(const struct model *model, int from, enum buffer buffer)
{
    for (int i = from + 1; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        int count;
        bool read = false, written = false;
        const struct operand *operands = op_table[op->kind].list(&count);
        for (int j = 0; j < count; j++)
            if (is_operand(op, &operands[j], buffer)) {
                read |= flow_reads(op, &operands[j]);
                written |= role_writes(operands[j].role);
            }
        if (read || written)
            return read;
    }
    return false;
}
