// SPDX-License-Identifier: Apache-2.0
// engine/gpu/bind.c: kernel dispatch tables of the GPU: for every op and load the rows that execute it, each with its
// arguments. Rows with fused neighbours get links to the neighbours' arguments; where the matrices of an op have
// different rows, each row gets its own.
#include <string.h>

#include "engine/engine.h"
#include "engine/gpu/internal.h"

// The arguments of the layer's op of that kind before this one.
static const union op_args *find_before(const union op_args *args, const struct model *model, int i, enum op_kind kind)
{
    while (model->ops[i].kind != kind)
        i--;
    return &args[i];
}

static void link_fused(union op_args *args, const struct model *model, int i, uint32_t fuses)
{
    if (model->ops[i].kind == OP_LINEAR) {
        args[i].linear.norm = fuses & KERNEL_FUSES_NORM ? &args[i - 1].norm : NULL;
        args[i].linear.act_mul = fuses & KERNEL_FUSES_ACT_MUL ? &args[i + 1].act_mul : NULL;
        args[i].linear.add = fuses & KERNEL_FUSES_ADD ? &args[i + 1].add : NULL;
    } else if (model->ops[i].kind == OP_KV_WRITE) {
        struct kv_write_args *write = &args[i].kv_write;
        write->rope = fuses & KERNEL_FUSES_ROPE ? &find_before(args, model, i, OP_ROPE)->rope : NULL;
        write->transform = fuses & KERNEL_FUSES_TRANSFORM ? &find_before(args, model, i, OP_TRANSFORM)->transform
                                                          : NULL;
    }
}

// Keeps the outputs that are marked. With a fused activation the gate is computed first and written to the activation's
// result; up follows, and its row reads the gate there.
static void keep_outputs(union op_args *args, enum op_kind kind, uint32_t kept)
{
    int count = 0;
    if (kind == OP_EXPERTS) {
        struct experts_args *experts = &args->experts;
        for (int i = 0; i < experts->outputs; i++)
            if (kept >> i & 1)
                experts->output[count++] = experts->output[i];
        experts->outputs = count;
        return;
    }
    struct linear_args *linear = &args->linear;
    for (int i = 0; i < linear->outputs; i++)
        if (kept >> i & 1)
            linear->output[count++] = linear->output[i];
    linear->outputs = count;
    if (linear->act_mul && kept == 1) {
        linear->output[0].y = linear->act_mul->out;
        linear->act_mul = NULL;
    }
}

// One call of a row for all matrices that have it.
static void bind_calls(struct gpu *gpu, const struct op *op, const struct plan_op *bound, int load,
                       const union op_args *args, struct gpu_calls *out)
{
    const struct kernel *const *rows = bound->rows[load];
    uint32_t done = 0, all = op->matrices ? (1u << op->matrices) - 1 : 1;
    for (int i = 0; done != all; i++) {
        uint32_t alike = 0;
        for (int j = i; all >> j & 1; j++)
            alike |= (uint32_t)(rows[j] == rows[i]) << j;
        if (done >> i & 1)
            continue;
        union op_args *own = ARENA_NEW(&gpu->arena, union op_args, alike != all);
        if (alike != all) {
            *own = *args;
            keep_outputs(own, op->kind, alike);
        }
        out->call[out->count++] = (struct gpu_call){ rows[i], alike == all ? args : own };
        done |= alike;
    }
}

void gpu_bind(struct gpu *gpu, const struct engine *engine, const union op_args *args)
{
    const struct model *model = &engine->model;
    for (int load = 0; load < KERNEL_LOADS; load++) {
        union op_args *linked = ARENA_NEW(&gpu->arena, union op_args, model->op_count);
        gpu->calls[load] = ARENA_NEW(&gpu->arena, struct gpu_calls, model->op_count);
        memcpy(linked, args, (size_t)model->op_count * sizeof *args);
        for (int i = 0; i < model->op_count; i++) {
            const struct plan_op *bound = &engine->plan.ops[i];
            if (!bound->rows[load][0] || bound->left_out)
                continue;
            link_fused(linked, model, i, bound->fuses[load]);
            bind_calls(gpu, &model->ops[i], bound, load, &linked[i], &gpu->calls[load][i]);
        }
    }
}
