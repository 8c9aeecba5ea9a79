// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/importance.h"

#include <math.h>
#include <stdlib.h>

#include "kernel/ref/weight.h"

#define IMPORTANCE_LEAST 0.1f // relative to the mean: the estimate is rough

static struct importance *make(struct arena *arena, struct importance importance)
{
    struct importance *made = ARENA_NEW(arena, struct importance, 1);
    *made = importance;
    return made;
}

static const struct importance *follow_attention(const struct op *op, const struct model *model,
                                                 const struct importance *values, struct arena *arena)
{
    const struct layer *layer = &model->layer[op->layer];
    if (!values || layer->latent || values->count != (int64_t)layer->kv_heads * layer->head_dim)
        return NULL;
    return make(arena,
                (struct importance){ .values = values,
                                     .head_dim = layer->head_dim,
                                     .sharing = layer->heads / layer->kv_heads,
                                     .count = (int64_t)layer->heads * layer->head_dim });
}

static const struct importance *follow_gate(const struct importance *gate, const struct importance *up,
                                            struct arena *arena)
{
    if (!gate || !up || gate->count != up->count)
        return NULL;
    return make(arena, (struct importance){ .gate = gate, .up = up, .count = gate->count });
}

void importance_follow(const struct op *op, const struct model *model, const struct importance *now[BUFFER_COUNT],
                       struct importance *results[LINEAR_OUTPUTS_MAX], struct arena *arena)
{
    const struct importance *out = NULL;
    for (int i = 0; i < LINEAR_OUTPUTS_MAX; i++)
        results[i] = NULL;
    if (op->kind == OP_NORM && op->groups == 1 && op->vector && !op->vector->source)
        out = make(arena,
                   (struct importance){ .norm = op->vector, .offset = op->offset, .count = op->vector->shape[0] });
    else if (op->kind == OP_ATTENTION)
        out = follow_attention(op, model, now[BUFFER_V], arena);
    else if (op->kind == OP_ACT_MUL)
        out = follow_gate(now[op->in], now[op->second], arena);
    if (op->kind == OP_LINEAR) {
        for (int i = 0; i < op->matrices; i++)
            now[op->matrix[i].out] = results[i] = make(
                arena,
                (struct importance){ .rows = ARENA_NEW(arena, float, op->matrix[i].tensor->shape[0]),
                                     .count = op->matrix[i].tensor->shape[0] });
        return;
    }
    for (int i = 0; i < op->matrices; i++)
        now[op->matrix[i].out] = NULL; // unknown: experts are chosen per token
    if (op->kind == OP_NORM || op->kind == OP_ATTENTION || op->kind == OP_ACT_MUL)
        now[op->out] = out;
}

// False if a value it depends on is not known.
static bool evaluate(const struct importance *importance, float *out)
{
    size_t count = (size_t)importance->count;
    if (importance->norm) {
        weight_decode(importance->norm->dtype, importance->norm->data, count, out);
        for (size_t i = 0; i < count; i++) {
            float weight = out[i] + (float)importance->offset;
            out[i] = weight * weight;
        }
        return true;
    }
    if (importance->values) {
        size_t dim = (size_t)importance->head_dim, sharing = (size_t)importance->sharing;
        float *values = memory_new((size_t)importance->values->count, sizeof *values);
        bool known = evaluate(importance->values, values);
        for (size_t i = 0; i < count; i++)
            out[i] = values[i / (dim * sharing) * dim + i % dim];
        free(values);
        return known;
    }
    if (importance->gate) {
        float *up = memory_new(count, sizeof *up);
        bool known = evaluate(importance->gate, out) && evaluate(importance->up, up);
        for (size_t i = 0; i < count; i++)
            out[i] *= up[i];
        free(up);
        return known;
    }
    for (size_t i = 0; i < count && importance->known; i++)
        out[i] = importance->rows[i];
    return importance->known;
}

float *importance_of(const struct importance *importance, int64_t count)
{
    if (!importance || importance->count != count)
        return NULL;
    float *out = memory_new((size_t)count, sizeof *out);
    double sum = 0;
    bool known = evaluate(importance, out);
    for (int64_t i = 0; i < count; i++)
        sum += out[i];
    double mean = sum / (double)count;
    if (!known || !(mean > 0) || !isfinite(mean)) {
        free(out);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = fmaxf((float)(out[i] / mean), IMPORTANCE_LEAST);
    return out;
}
