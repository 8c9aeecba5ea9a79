// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/cholesky.h"

#include <stdlib.h>

#include "kernel/ref/hessian.h"

// Measured with the built-in text. With less of the first, weights make up for errors that other texts do not have;
// with less of the second, those of columns that it hardly ever uses run away.
static const struct moments_doubt doubt = { .own = 0.5f, .common = 0.01f };

enum state { STATE_MOMENTS, STATE_FACTOR, STATE_ZEROS };

bool factors_each(const struct op *op)
{
    return op->kind == OP_EXPERTS && op->per_slot; // else a token's experts share its input
}

static size_t count_of(const struct op *op) { return factors_each(op) ? (size_t)op->matrix[0].tensor->shape[0] : 1; }

static size_t values_each(const struct op *op)
{
    size_t size = moments_size((size_t)op->width);
    return size * size;
}

static size_t op_bytes(const struct op *op) { return count_of(op) * values_each(op) * sizeof(float); }

static void let_go(struct factors *factors)
{
    for (int i = 0; i < factors->held_count; i++) {
        memory_map_free(factors->held[i].moments, op_bytes(&factors->model->ops[factors->held[i].op]));
        free(factors->states[i]);
    }
    factors->held_count = 0;
}

void factors_free(struct factors *factors)
{
    let_go(factors);
    free(factors->held);
    free(factors->states);
    *factors = (struct factors){ 0 };
}

// ---- gathering ----

static bool has_moments(const struct factors *factors, const struct item *item)
{
    return item->linear && !item->kept && item->cols == factors->model->ops[item->op].width;
}

// Takes memory for the op of this item and for as many of those after it as there is. None: not even for the first.
static bool hold(struct factors *factors, const struct items *items, size_t index, double *values, struct error *err)
{
    size_t bytes = 0;
    int last = -1;
    let_go(factors);
    *values = 0;
    for (size_t i = index; i < items->count; i++) {
        const struct item *item = &items->items[i];
        if (!has_moments(factors, item))
            continue;
        const struct op *op = &factors->model->ops[item->op];
        if (item->op > last) {
            if (op_bytes(op) > factors->source->bytes - bytes)
                break;
            float *moments = memory_map_new(op_bytes(op));
            if (!moments)
                return fail(err,
                            "the system does not give %zu MiB for what matrices are multiplied with; "
                            "--rounding nearest needs none of it",
                            op_bytes(op) >> 20);
            factors->states[factors->held_count] = memory_new(count_of(op), 1);
            factors->held[factors->held_count++] = (struct moments_wanted){ item->op, moments };
            bytes += op_bytes(op);
            last = item->op;
        }
        *values += (double)item->rows * (double)item->cols;
    }
    return true;
}

static bool gather(struct factors *factors, const struct items *items, size_t index, struct error *err)
{
    const struct moments_source *source = factors->source;
    double values;
    if (!factors->held) {
        factors->held = memory_new((size_t)factors->model->op_count, sizeof *factors->held);
        factors->states = memory_new((size_t)factors->model->op_count, sizeof *factors->states);
    }
    if (!hold(factors, items, index, &values, err))
        return false;
    for (int piece = 0; piece < source->pieces && factors->held_count; piece++)
        if (!source->gather(source->context, piece, factors->held, factors->held_count, err)
            || !factors->progress(factors->progress_context, values / source->pieces, err))
            return false;
    return true;
}

// ---- finding ----

static int held_at(const struct factors *factors, int op)
{
    for (int i = 0; i < factors->held_count; i++)
        if (factors->held[i].op == op)
            return i;
    return -1;
}

bool factors_find(struct factors *factors, const struct items *items, size_t index, const float **out,
                  struct error *err)
{
    const struct item *item = &items->items[index];
    *out = NULL;
    if (!factors->source || !has_moments(factors, item))
        return true;
    if (held_at(factors, item->op) < 0 && !gather(factors, items, index, err))
        return false;
    int at = held_at(factors, item->op);
    if (at < 0)
        return true;
    const struct op *op = &factors->model->ops[item->op];
    size_t expert = factors_each(op) ? (size_t)item->expert : 0;
    float *values = factors->held[at].moments + expert * values_each(op);
    uint8_t *state = &factors->states[at][expert];
    if (*state == STATE_MOMENTS)
        *state = moments_factor(values, (size_t)op->width, doubt, factors->team) ? STATE_FACTOR : STATE_ZEROS;
    *out = *state == STATE_FACTOR ? values : NULL;
    return true;
}
