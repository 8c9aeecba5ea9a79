// SPDX-License-Identifier: Apache-2.0
// plan/weights.c: which weights lie where: in the file, or packed as a kernel reads them. A tensor counts once: where
// the table of embeddings is the head again, the head is packed, and tokens are looked up in the file, whose pages come
// and go.
#include <string.h>

#include "base/map.h"
#include "plan/decide.h"

enum { PACKED_ALIGNMENT = 64 };

void plan_weights_by_format(const struct model *model, size_t *bytes)
{
    struct map seen = { 0 };
    memset(bytes, 0, DTYPE_COUNT * sizeof *bytes);
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        const struct tensor *used[2 * LINEAR_OUTPUTS_MAX + 1] = { op->vector };
        for (int j = 0; j < op->matrices; j++) {
            used[1 + 2 * j] = op->matrix[j].tensor;
            used[2 + 2 * j] = op->matrix[j].bias;
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

static size_t align(size_t bytes)
{
    return (bytes + PACKED_ALIGNMENT - 1) / PACKED_ALIGNMENT * PACKED_ALIGNMENT;
}

// Where the matrix lies among the packed weights; it is added to them if it is new.
static size_t place_packed(struct plan *plan, struct map *places, const struct tensor *tensor,
                           const struct kernel_packing *packing)
{
    int64_t at = (int64_t)plan->packed_bytes;
    struct bytes key = bytes_of(arena_format(&plan->arena, "%s %s", packing->name, tensor->name));
    if (map_get(places, key, &at))
        return (size_t)at;
    map_put(places, key, at);
    plan->packed_bytes += align(packing->bytes(tensor->dtype, (int)tensor->shape[0], (int)tensor->shape[1]));
    return (size_t)at;
}

static void pack_matrices(struct plan *plan, struct map *counted)
{
    struct map places = { 0 };
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        struct plan_op *bound = &plan->ops[i];
        for (int j = 0; j < op->matrices && bound->few->packing; j++) {
            bound->packed_at[j] = place_packed(plan, &places, op->matrix[j].tensor, bound->few->packing);
            map_put(counted, bytes_of(op->matrix[j].tensor->name), 1);
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

static size_t scratch_bytes(const struct plan *plan, const struct op *op, const struct kernel *kernel)
{
    uint64_t formats = 0;
    for (int i = 0; i < op->matrices; i++)
        formats |= (uint64_t)1 << op->matrix[i].tensor->dtype;
    int rows = op->on_outputs ? plan->outputs : plan->batch_tokens;
    return kernel->scratch_bytes ? align(kernel->scratch_bytes(formats, rows, op->width)) : 0;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void decide_weights(struct plan *plan)
{
    struct map counted = { 0 };
    pack_matrices(plan, &counted);
    plan->weight_bytes = plan->packed_bytes;
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        count_plain(plan, &counted, op->vector);
        for (int j = 0; j < op->matrices; j++) {
            count_plain(plan, &counted, op->matrix[j].tensor);
            count_plain(plan, &counted, op->matrix[j].bias);
        }
        plan->scratch_bytes = larger(plan->scratch_bytes, scratch_bytes(plan, op, plan->ops[i].few));
        plan->scratch_bytes = larger(plan->scratch_bytes, scratch_bytes(plan, op, plan->ops[i].many));
    }
    map_free(&counted);
}
