// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/cholesky.h"

#include <stdlib.h>

#include "kernel/ref/hessian.h"

// Damping, tuned with the built-in text. With less of `own`, weights compensate errors that do not occur in other
// texts; with less of `common`, weights of columns that the text hardly uses diverge.
static const struct hessian_damping damping = { .own = 0.5f, .common = 0.01f };

enum state { STATE_HESSIAN, STATE_FACTOR, STATE_ZEROS };

bool cholesky_per_expert(const struct op *op)
{
    return op->kind == OP_EXPERTS && op->per_slot; // else a token's experts share its input
}

static size_t count_of(const struct op *op)
{
    return cholesky_per_expert(op) ? (size_t)op->matrix[0].tensor->shape[0] : 1;
}

static size_t values_each(const struct op *op)
{
    size_t size = hessian_size((size_t)op->width);
    return size * size;
}

static size_t op_bytes(const struct op *op) { return count_of(op) * values_each(op) * sizeof(float); }

static void release_held(struct cholesky *cholesky)
{
    for (int i = 0; i < cholesky->held_count; i++) {
        memory_map_free(cholesky->held[i].hessian, op_bytes(&cholesky->model->ops[cholesky->held[i].op]));
        free(cholesky->states[i]);
    }
    cholesky->held_count = 0;
}

void cholesky_free(struct cholesky *cholesky)
{
    release_held(cholesky);
    free(cholesky->held);
    free(cholesky->states);
    *cholesky = (struct cholesky){ 0 };
}

// ---- Hessians ----

static bool has_hessian(const struct cholesky *cholesky, const struct item *item)
{
    return item->linear && !item->kept && item->cols == cholesky->model->ops[item->op].width;
}

// Allocates Hessians for this item's op and as many of the following ops as the memory allows; none if the first does
// not fit.
static bool allocate_hessians(struct cholesky *cholesky, const struct items *items, size_t index, double *values,
                              struct error *err)
{
    size_t bytes = 0;
    int last = -1;
    release_held(cholesky);
    *values = 0;
    for (size_t i = index; i < items->count; i++) {
        const struct item *item = &items->items[i];
        if (!has_hessian(cholesky, item))
            continue;
        const struct op *op = &cholesky->model->ops[item->op];
        if (item->op > last) {
            if (op_bytes(op) > cholesky->source->bytes - bytes)
                break;
            float *hessian = memory_map_new(op_bytes(op));
            if (!hessian)
                return fail(err,
                            "the system does not give %zu MiB for what matrices are multiplied with; "
                            "--rounding nearest needs none of it",
                            op_bytes(op) >> 20);
            cholesky->states[cholesky->held_count] = memory_new(count_of(op), 1);
            cholesky->held[cholesky->held_count++] = (struct hessian_target){ item->op, hessian };
            bytes += op_bytes(op);
            last = item->op;
        }
        *values += (double)item->rows * (double)item->cols;
    }
    return true;
}

static bool accumulate(struct cholesky *cholesky, const struct items *items, size_t index, struct error *err)
{
    const struct hessian_source *source = cholesky->source;
    double values;
    if (!cholesky->held) {
        cholesky->held = memory_new((size_t)cholesky->model->op_count, sizeof *cholesky->held);
        cholesky->states = memory_new((size_t)cholesky->model->op_count, sizeof *cholesky->states);
    }
    if (!allocate_hessians(cholesky, items, index, &values, err))
        return false;
    for (int window = 0; window < source->windows && cholesky->held_count; window++)
        if (!source->accumulate(source->context, window, cholesky->held, cholesky->held_count, err)
            || !cholesky->progress(cholesky->progress_context, values / source->windows, err))
            return false;
    return true;
}

// ---- lookup ----

static int held_at(const struct cholesky *cholesky, int op)
{
    for (int i = 0; i < cholesky->held_count; i++)
        if (cholesky->held[i].op == op)
            return i;
    return -1;
}

bool cholesky_find(struct cholesky *cholesky, const struct items *items, size_t index, const float **out,
                   struct error *err)
{
    const struct item *item = &items->items[index];
    *out = NULL;
    if (!cholesky->source || !has_hessian(cholesky, item))
        return true;
    if (held_at(cholesky, item->op) < 0 && !accumulate(cholesky, items, index, err))
        return false;
    int at = held_at(cholesky, item->op);
    if (at < 0)
        return true;
    const struct op *op = &cholesky->model->ops[item->op];
    size_t expert = cholesky_per_expert(op) ? (size_t)item->expert : 0;
    float *values = cholesky->held[at].hessian + expert * values_each(op);
    uint8_t *state = &cholesky->states[at][expert];
    if (*state == STATE_HESSIAN)
        *state = hessian_cholesky(values, (size_t)op->width, damping, cholesky->pool) ? STATE_FACTOR : STATE_ZEROS;
    *out = *state == STATE_FACTOR ? values : NULL;
    return true;
}
