// SPDX-License-Identifier: Apache-2.0
#include "model/flow.h"

// Works on two buffers and has no result besides.
static bool is_in_place(const struct op *op) { return op->kind == OP_ROPE || op->kind == OP_TRANSFORM; }

static bool reads_two(const struct op *op)
{
    return is_in_place(op) || op->kind == OP_KV_WRITE || op->kind == OP_ACT_MUL || op->kind == OP_SSM_SCAN
        || op->kind == OP_GATED_DELTA;
}

// To what is in its result already.
static bool adds(const struct op *op) { return op->kind == OP_ADD || op->adds; }

bool flow_is_read(const struct model *model, int from, enum buffer buffer)
{
    for (int i = from + 1; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        if (op->kind != OP_EMBED && (op->in == buffer || (reads_two(op) && op->second == buffer)))
            return true;
        if (adds(op) && op->out == buffer)
            return true;
        bool by_matrices = op->kind == OP_LINEAR || op->kind == OP_EXPERTS;
        for (int j = 0; j < op->matrices && by_matrices; j++)
            if (op->matrix[j].out == buffer)
                return false;
        if (!by_matrices && !is_in_place(op) && op->kind != OP_KV_WRITE && op->out == buffer)
            return false;
    }
    return false;
}
