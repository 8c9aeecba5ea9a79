// SPDX-License-Identifier: Apache-2.0
// plan/weights.c: which weights lie where: in the file, or placed: packed as a kernel reads them, made of what the file
// has where no kernel reads that, and on a GPU in its memory in any case. On CPUs a tensor counts once: where the table
// of embeddings is the head again, the head is packed, and tokens are looked up in the file, whose pages come and go.
#include <string.h>

#include "base/map.h"
#include "model/tensor_source.h"
#include "plan/decide.h"

void plan_weights_by_format(const struct model *model, size_t *bytes)
{
    struct map seen = { 0 };
    memset(bytes, 0, DTYPE_COUNT * sizeof *bytes);
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        const struct tensor *used[1 + OP_VECTORS_MAX + 2 * LINEAR_OUTPUTS_MAX] = { op->vector, op->more[0],
                                                                                   op->more[1] };
        for (int j = 0; j < op->matrices; j++) {
            used[1 + OP_VECTORS_MAX + 2 * j] = op->matrix[j].tensor;
            used[2 + OP_VECTORS_MAX + 2 * j] = op->matrix[j].bias;
        }
        for (size_t j = 0; j < sizeof used / sizeof *used; j++) {
            int64_t ignored;
            if (!used[j] || map_get(&seen, bytes_of(used[j]->name), &ignored))
                continue;
            map_put(&seen, bytes_of(used[j]->name), 1);
            bytes[used[j]->dtype] += used[j]->bytes;
        }
    }
    map_free(&seen);
}

size_t plan_placed_bytes(const struct tensor *tensor, const struct kernel_packing *packing)
{
    size_t count = tensor->rank == 3 ? (size_t)tensor->shape[0] : 1;
    if (!packing)
        return tensor->bytes;
    return count * packing->bytes(tensor->dtype, (int)stored_rows(tensor), (int)stored_cols(tensor));
}

// Where the matrix lies among the placed weights; it is added to them if it is new.
static size_t place(struct plan *plan, struct map *places, const struct tensor *tensor,
                    const struct kernel_packing *packing)
{
    int64_t at = (int64_t)plan->placed_bytes;
    const char *order = packing ? packing->name : "file";
    struct bytes key = bytes_of(arena_format(&plan->arena, "%s %s", order, tensor->name));
    if (map_get(places, key, &at))
        return (size_t)at;
    map_put(places, key, at);
    plan->placed_bytes += plan_align(plan_placed_bytes(tensor, packing));
    return (size_t)at;
}

// A matrix that has just been added lies there in another layout already.
static void note_copy(struct plan *plan, const struct map *counted, const struct tensor *tensor, size_t added)
{
    int64_t ignored;
    if (!added || !map_get(counted, bytes_of(tensor->name), &ignored))
        return;
    plan->copied_bytes += added;
    plan->copied_name = plan->copied_count++ ? plan->copied_name : tensor->name;
}

static void place_matrices(struct plan *plan, struct map *counted)
{
    struct map places = { 0 };
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        struct plan_op *bound = &plan->ops[i];
        for (int j = 0; j < op->matrices; j++) {
            const struct tensor *tensor = op->matrix[j].tensor;
            const struct kernel_packing *packing = plan_packing(plan, i, j);
            bool placed = packing || plan->device.kind == DEVICE_CUDA;
            bound->placed_at[j] = PLAN_IN_FILE;
            if (!placed && !tensor->stored)
                continue;
            size_t before = plan->placed_bytes;
            bound->placed_at[j] = place(plan, &places, tensor, packing);
            note_copy(plan, counted, tensor, plan->placed_bytes - before);
            map_put(counted, bytes_of(tensor->name), 1);
        }
    }
    map_free(&places);
}

static void count_plain(struct plan *plan, struct map *counted, const struct tensor *tensor)
{
    int64_t ignored;
    if (!tensor || map_get(counted, bytes_of(tensor->name), &ignored))
        return;
    map_put(counted, bytes_of(tensor->name), 1);
    plan->weight_bytes += tensor->bytes;
}

// Scratch memory for an op at a load, of the row of its first matrix and of all that have the same.
static size_t scratch_bytes(const struct plan *plan, int index, int load, int first)
{
    const struct op *op = &plan->model->ops[index];
    const struct plan_op *bound = &plan->ops[index];
    const struct kernel *kernel = bound->rows[load][first];
    int rows = op->on_outputs ? plan->outputs : plan->batch_tokens, most = kernel_load_most(load);
    struct kernel_extent extent = { .rows = rows < most || kernel_walks_sequences(op->kind) ? rows : most,
                                    .width = op->width,
                                    .sequences = plan->max_num_seqs,
                                    .context = plan->max_model_len };
    for (int i = first; i < op->matrices; i++)
        if (bound->rows[load][i] == kernel)
            extent.weights |= (uint64_t)1 << op->matrix[i].tensor->dtype;
    if (op->kind == OP_EXPERTS)
        extent.rows *= op->groups;
    if (op->kind == OP_ATTENTION)
        extent.heads = plan->model->layer[op->layer].heads;
    return kernel->scratch_bytes ? plan_align(kernel->scratch_bytes(&extent)) : 0;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

void decide_weights(struct plan *plan)
{
    struct map counted = { 0 };
    place_matrices(plan, &counted);
    plan->weight_bytes = plan->placed_bytes;
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        count_plain(plan, &counted, op->vector);
        for (int j = 0; j < OP_VECTORS_MAX; j++)
            count_plain(plan, &counted, op->more[j]);
        for (int j = 0; j < op->matrices; j++) {
            count_plain(plan, &counted, op->matrix[j].tensor);
            count_plain(plan, &counted, op->matrix[j].bias);
        }
        for (int load = 0; load < KERNEL_LOADS; load++)
            for (int j = 0; j < LINEAR_OUTPUTS_MAX && plan->ops[i].rows[load][j]; j++)
                plan->scratch_bytes = larger(plan->scratch_bytes, scratch_bytes(plan, i, load, j));
    }
    map_free(&counted);
}
