// SPDX-License-Identifier: Apache-2.0
#include "engine/weights.h"

#include <math.h>

#include "kernel/ref/weight.h"

enum { READ_CHUNK_BYTES = 4 << 20, PAGE_BYTES = 4096 };

bool weights_matrix(const struct op_matrix *matrix, struct weight *out, struct error *err)
{
    const struct tensor *tensor = matrix->tensor;
    float scale = 1;
    if (matrix->scale)
        weight_decode(matrix->scale->dtype, matrix->scale->data, 1, &scale);
    if (!(scale > 0 && isfinite(scale)))
        return fail(err, "tensor %s is %g; an overall scale must be a positive number, so the file is damaged",
                    matrix->scale->name, scale);
    *out = (struct weight){
        .dtype = tensor->dtype,
        .rows = (int)tensor->shape[0],
        .cols = (int)tensor->shape[1],
        .data = tensor->data,
        .scale = scale,
    };
    return true;
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

void weights_read(const struct model *model, size_t total_bytes, void (*progress)(void *context, double done),
                  void *context)
{
    size_t done = 0;
    for (int i = 0; i < model->op_count; i++) {
        for (int j = 0; j < model->ops[i].matrices; j++) {
            const struct tensor *tensor = model->ops[i].matrix[j].tensor;
            if (i && tensor == model->ops[0].matrix[0].tensor)
                continue; // the embedding table again, as the head
            for (size_t at = 0; at < tensor->bytes; at += PAGE_BYTES) {
                (void)*(const volatile char *)(tensor->data + at);
                if (progress && at % READ_CHUNK_BYTES == 0)
                    progress(context, (double)(done + at) / (double)total_bytes);
            }
            done += tensor->bytes;
        }
    }
    if (progress)
        progress(context, 1);
}
