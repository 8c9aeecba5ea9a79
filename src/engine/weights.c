// SPDX-License-Identifier: Apache-2.0
#include "engine/weights.h"

#include <math.h>

#include "kernel/ref/weight.h"

enum { PAGE_BYTES = 4096, SLICE_BYTES = 16 << 20 };

static struct weight matrix_of(const struct tensor *tensor)
{
    return (struct weight){
        .dtype = tensor->dtype,
        .rows = (int)tensor->shape[0],
        .cols = (int)tensor->shape[1],
        .data = tensor->data,
        .scale = 1,
    };
}

bool weights_matrix(const struct op_matrix *matrix, struct weight *out, struct error *err)
{
    *out = matrix_of(matrix->tensor);
    if (matrix->scale)
        weight_decode(matrix->scale->dtype, matrix->scale->data, 1, &out->scale);
    return (out->scale > 0 && isfinite(out->scale))
        || fail(err, "tensor %s is %g; an overall scale must be a positive number, so the file is damaged",
                matrix->scale->name, out->scale);
}

bool weights_vector(struct arena *arena, const struct tensor *tensor, float offset, const float **out,
                    struct error *err)
{
    *out = NULL;
    if (!tensor)
        return true;
    size_t count = (size_t)tensor_values(tensor);
    float *values = ARENA_NEW(arena, float, count);
    weight_decode(tensor->dtype, tensor->data, count, values);
    for (size_t i = 0; i < count; i++) {
        values[i] += offset;
        if (!isfinite(values[i]))
            return fail(err, "tensor %s holds a value that is not finite at %zu; the file is damaged", tensor->name, i);
    }
    *out = values;
    return true;
}

// ---- loading ----

struct packing_job {
    const struct kernel_packing *packing;
    struct weight weight;
    uint8_t *out;
    int slice, slices;
};

static void pack_part(void *context, int phase, int part, int parts)
{
    (void)phase;
    const struct packing_job *job = context;
    job->packing->pack(&job->weight, job->slice * parts + part, job->slices * parts, job->out);
}

void weights_pack(const struct checkpoint *checkpoint, const struct tensor *tensor,
                  const struct kernel_packing *packing, void *out, struct team *team)
{
    struct packing_job job = { packing, matrix_of(tensor), out, .slices = (int)(tensor->bytes / SLICE_BYTES) + 1 };
    for (; job.slice < job.slices; job.slice++) {
        team_run(team, &(struct team_work){ pack_part, &job, .phases = 1, .divisible = true });
        checkpoint_release(checkpoint, tensor);
    }
}

static void touch(const struct tensor *tensor)
{
    for (size_t at = 0; at < tensor->bytes; at += PAGE_BYTES)
        (void)*(const volatile char *)(tensor->data + at);
}

bool weights_load(const struct plan *plan, const struct weights_target *target,
                  void (*progress)(void *context, double done), void *context, struct error *err)
{
    int done = 0, total = 0;
    size_t end = 0; // places are given in this same order: what lies before the end is there already
    for (int i = 0; i < plan->model->op_count; i++)
        total += plan->model->ops[i].matrices;
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct op *op = &plan->model->ops[i];
        for (int j = 0; j < op->matrices; j++) {
            const struct tensor *tensor = op->matrix[j].tensor;
            size_t at = plan->ops[i].placed_at[j];
            if (at == PLAN_IN_FILE && op->kind != OP_EMBED) { // of that a few rows are read at a time
                touch(tensor);
            } else if (at != PLAN_IN_FILE && at >= end) {
                if (!target->put(target->context, tensor, plan->ops[i].few->packing, at, err))
                    return false;
                end = at + 1;
            }
            if (progress)
                progress(context, ++done / (double)total);
        }
    }
    return true;
}
