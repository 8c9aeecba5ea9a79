// SPDX-License-Identifier: Apache-2.0
#include "engine/weights.h"

#include <math.h>
#include <stdlib.h>

#include "kernel/ref/weight.h"
#include "model/tensor_source.h"

enum { PAGE_BYTES = 4096, SLICE_BYTES = 16 << 20 };

static struct weight matrix_of(const struct tensor *tensor)
{
    return (struct weight){
        .dtype = tensor->dtype,
        .rows = (int)tensor_rows(tensor),
        .cols = (int)tensor_cols(tensor),
        .data = tensor->data,
        .scale = 1,
    };
}

static bool check_positive(const struct tensor *tensor, float scale, struct error *err)
{
    return (scale > 0 && isfinite(scale))
        || fail(err, "tensor %s is %g; an overall scale must be a positive number, so the file is damaged",
                tensor->name, (double)scale);
}

bool weights_scales(struct arena *arena, const struct op_matrix *matrix, const float **out, struct error *err)
{
    const struct tensor *scale = matrix->scale;
    *out = NULL;
    if (!scale)
        return true;
    if (!tensor_source_check(scale, err) || !weights_vector(arena, scale, 0, out, err))
        return false;
    for (int64_t i = 0; i < tensor_values(scale); i++)
        if (!check_positive(scale, (*out)[i], err))
            return false;
    return true;
}

bool weights_matrix(const struct op_matrix *matrix, struct weight *out, struct error *err)
{
    const float *scale;
    struct arena arena = { 0 };
    *out = matrix_of(matrix->tensor);
    if (!matrix->scale || matrix->tensor->rank == 3)
        return true;
    bool ok = weights_scales(&arena, matrix, &scale, err);
    if (ok)
        out->scale = *scale;
    arena_free(&arena);
    return ok;
}

bool weights_vector(struct arena *arena, const struct tensor *tensor, float offset, const float **out,
                    struct error *err)
{
    *out = NULL;
    if (!tensor)
        return true;
    size_t count = (size_t)tensor_values(tensor), cols = tensor->rank ? (size_t)tensor_cols(tensor) : 1;
    float *values = ARENA_NEW(arena, float, count);
    void *bytes = memory_new(tensor->bytes, 1);
    tensor_source_read(tensor, 0, (int64_t)(count / cols), bytes);
    weight_decode(tensor->dtype, bytes, count, values);
    free(bytes);
    for (size_t i = 0; i < count; i++) {
        values[i] += offset;
        if (!isfinite(values[i]))
            return fail(err, "tensor %s holds a value that is not finite at %zu; the file is damaged", tensor->name, i);
    }
    *out = values;
    return true;
}

bool weights_cache_scale(const struct tensor *tensor, float *out, struct error *err)
{
    *out = tensor ? 0 : 1;
    for (int64_t i = 0; tensor && i < tensor_values(tensor); i++) {
        float scale = tensor_source_scale(tensor, i);
        if (!(scale > 0 && isfinite(scale)))
            return fail(err,
                        "tensor %s is %g; a scale of the cache must be a positive number: choose a cache format "
                        "without one (--kv-cache-dtype bfloat16), or take the tensor out of the checkpoint",
                        tensor->name, (double)scale);
        *out = scale > *out ? scale : *out;
    }
    return true;
}

// ---- making ----

static void release(void *context, const struct tensor *tensor) { checkpoint_release(context, tensor); }

void weights_release(const struct checkpoint *checkpoint, const struct tensor *tensor)
{
    tensor_source_visit(tensor, release, (void *)checkpoint);
}

struct reading_job {
    const struct tensor *tensor;
    int64_t first, count;
    size_t row_bytes;
    char *out;
};

static void read_chunk(void *context, int step, int chunk, int chunks)
{
    (void)step;
    const struct reading_job *job = context;
    int64_t first = job->count * chunk / chunks, end = job->count * (chunk + 1) / chunks;
    if (end > first)
        tensor_source_read(job->tensor, job->first + first, end - first, job->out + (size_t)first * job->row_bytes);
}

void weights_make_rows(const struct tensor *tensor, int64_t first, int64_t count, void *out, struct thread_pool *pool)
{
    struct reading_job job = { tensor, first, count, dtype_bytes(tensor->dtype, (size_t)tensor_cols(tensor)), out };
    thread_pool_run(pool, &(struct thread_pool_work){ read_chunk, &job, .steps = 1, .divisible = true });
}

struct packing_job {
    const struct kernel_packing *packing;
    struct weight weight;
    uint8_t *out;
    int slice, slices;
};

static void pack_chunk(void *context, int step, int chunk, int chunks)
{
    (void)step;
    const struct packing_job *job = context;
    job->packing->pack(&job->weight, job->slice * chunks + chunk, job->slices * chunks, job->out);
}

// A tensor's own pages are given back on the way.
static void pack(const struct checkpoint *checkpoint, const struct tensor *tensor, struct packing_job *job,
                 size_t bytes, struct thread_pool *pool)
{
    job->slices = (int)(bytes / SLICE_BYTES) + 1;
    for (job->slice = 0; job->slice < job->slices; job->slice++) {
        thread_pool_run(pool, &(struct thread_pool_work){ pack_chunk, job, .steps = 1, .divisible = true });
        if (!tensor->source && job->slices > 1)
            checkpoint_release(checkpoint, tensor);
    }
}

int weights_count(const struct tensor *tensor) { return tensor->rank == 3 ? (int)tensor->shape[0] : 1; }

bool weights_make(const struct checkpoint *checkpoint, const struct tensor *tensor, int expert,
                  const struct kernel_packing *packing, void *out, struct thread_pool *pool, struct error *err)
{
    struct packing_job job = { packing, matrix_of(tensor), out };
    int64_t rows = tensor_rows(tensor);
    size_t bytes = tensor->bytes / (size_t)weights_count(tensor);
    if (!packing) {
        weights_make_rows(tensor, expert * rows, rows, out, pool);
        return true;
    }
    if (!tensor->source) {
        job.weight.data = tensor->data + (size_t)expert * bytes;
        pack(checkpoint, tensor, &job, bytes, pool);
        return true;
    }
    void *made = memory_map_new(bytes);
    if (!made)
        return fail(err, "the system does not give %zu MiB for a matrix on its way to its kernel", bytes >> 20);
    weights_make_rows(tensor, expert * rows, rows, made, pool);
    job.weight.data = made;
    pack(checkpoint, tensor, &job, bytes, pool);
    memory_map_free(made, bytes);
    return true;
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
                if (!tensor_source_check(tensor, err)
                    || !target->put(target->context, tensor, plan_packing(plan, i, j), at, err))
                    return false;
                end = at + 1;
            }
            if (progress)
                progress(context, ++done / (double)total);
        }
    }
    return true;
}
