// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_source.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/minifloat.h"

enum { COLUMNS_BYTES = 1 << 18 }; // buffer for source rows

#define OVERALL_LIKELY 16.0f // a larger factor must be a divisor, and a divisor below 1/16 a factor
#define F16_MAX 65504.0f
#define F16_SCALE_MAX 128.0f // for f16 values: codes go up to 448

static int64_t last_extent(const struct tensor *tensor) { return tensor->rank ? tensor->shape[tensor->rank - 1] : 1; }

static size_t row_bytes(const struct tensor *tensor) { return dtype_bytes(tensor->dtype, (size_t)last_extent(tensor)); }

void tensor_source_read(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    size_t bytes = row_bytes(tensor);
    if (tensor->source)
        tensor->source->read(tensor, first, count, out);
    else
        memcpy(out, tensor->data + (size_t)first * bytes, (size_t)count * bytes);
}

bool tensor_source_check(const struct tensor *tensor, struct error *err)
{
    return !tensor->source || !tensor->source->check || tensor->source->check(tensor, err);
}

void tensor_source_visit(const struct tensor *tensor, void (*visit)(void *context, const struct tensor *of_file),
                         void *context)
{
    const struct tensor_source *source = tensor->source;
    if (!source) {
        visit(context, tensor);
        return;
    }
    const struct tensor *const whole[] = { source->codes, source->scales, source->zeros, source->order,
                                           source->extents };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (whole[i])
            tensor_source_visit(whole[i], visit, context);
    for (int64_t i = 0; source->parts && i < tensor->shape[0]; i++)
        tensor_source_visit(source->parts[i], visit, context);
}

const struct tensor *tensor_source_new(struct arena *arena, struct tensor shape, struct tensor_source source)
{
    struct tensor *tensor = ARENA_NEW(arena, struct tensor, 1);
    struct tensor_source *made = ARENA_NEW(arena, struct tensor_source, 1);
    struct error ignored;
    *made = source;
    *tensor = shape;
    tensor->data = NULL;
    tensor->source = made;
    bool measured = tensor_measure(tensor, &ignored);
    assert(measured); // its parts were measured
    (void)measured;
    return tensor;
}

// ---- stacks ----

static void read_stack(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct tensor *const *parts = tensor->source->parts;
    int64_t rows = tensor_values(parts[0]) / last_extent(parts[0]);
    char *to = out;
    while (count > 0) {
        int64_t part = first / rows, row = first % rows, run = rows - row < count ? rows - row : count;
        tensor_source_read(parts[part], row, run, to);
        to += (size_t)run * row_bytes(tensor);
        first += run;
        count -= run;
    }
}

static bool check_stack(const struct tensor *tensor, struct error *err)
{
    for (int64_t i = 0; i < tensor->shape[0]; i++)
        if (!tensor_source_check(tensor->source->parts[i], err))
            return false;
    return true;
}

const struct tensor *tensor_source_stack(struct arena *arena, const char *name, const struct tensor *const *parts,
                                         int count)
{
    const struct tensor_source *first = parts[0]->source;
    struct tensor shape = { .name = name, .dtype = parts[0]->dtype, .rank = parts[0]->rank + 1, .shape = { count } };
    assert(shape.rank <= TENSOR_RANK_MAX);
    memcpy(shape.shape + 1, parts[0]->shape, (size_t)parts[0]->rank * sizeof *shape.shape);
    return tensor_source_new(arena, shape,
                             (struct tensor_source){ .read = read_stack,
                                                     .check = check_stack,
                                                     .parts = parts,
                                                     .label = first ? first->label : NULL,
                                                     .why = first ? first->why : NULL });
}

// ---- runs of rows ----

static void read_run(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    tensor_source_read(tensor->source->codes, tensor->source->row_first + first, count, out);
}

bool tensor_source_check_codes(const struct tensor *tensor, struct error *err)
{
    return tensor_source_check(tensor->source->codes, err);
}

const struct tensor *tensor_source_rows(struct arena *arena, const struct tensor *tensor, int64_t first, int64_t count)
{
    struct tensor shape = *tensor;
    shape.shape[0] = count;
    shape.name = arena_format(arena, "%s (from %lld)", tensor->name, (long long)first);
    if (tensor->source)
        return tensor_source_new(arena, shape,
                                 (struct tensor_source){ .read = read_run,
                                                         .check = tensor_source_check_codes,
                                                         .codes = tensor,
                                                         .label = tensor->source->label,
                                                         .why = tensor->source->why,
                                                         .row_first = (int)first });
    struct tensor *view = ARENA_NEW(arena, struct tensor, 1);
    size_t each = tensor->rank > 1 ? row_bytes(tensor) : dtype_bytes(tensor->dtype, 1);
    *view = shape;
    view->data = tensor->data ? tensor->data + (size_t)first * each : NULL;
    view->bytes = (size_t)count * each;
    return view;
}

// ---- runs of columns ----

static void copy_columns(const struct tensor *tensor, const char *lines, int64_t count, char *out)
{
    const struct tensor *from = tensor->source->codes;
    size_t line = row_bytes(from), each = row_bytes(tensor);
    lines += dtype_bytes(tensor->dtype, (size_t)tensor->source->col_first);
    for (int64_t i = 0; i < count; i++, lines += line, out += each)
        memcpy(out, lines, each);
}

static void read_columns(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct tensor *from = tensor->source->codes;
    size_t line = row_bytes(from);
    if (!from->source) {
        copy_columns(tensor, from->data + (size_t)first * line, count, out);
        return;
    }
    int64_t most = line < COLUMNS_BYTES ? (int64_t)(COLUMNS_BYTES / line) : 1;
    char *made = memory_new((size_t)most, line);
    for (int64_t done = 0, run; done < count; done += run) {
        run = count - done < most ? count - done : most;
        tensor_source_read(from, first + done, run, made);
        copy_columns(tensor, made, run, (char *)out + (size_t)done * row_bytes(tensor));
    }
    free(made);
}

const struct tensor *tensor_source_columns(struct arena *arena, const struct tensor *tensor, int64_t first,
                                           int64_t count)
{
    struct tensor shape = *tensor;
    const struct tensor_source *source = tensor->source;
    shape.shape[tensor->rank - 1] = count;
    shape.name = arena_format(arena, "%s (columns from %lld)", tensor->name, (long long)first);
    if (!source || !source->parts)
        return tensor_source_new(arena, shape,
                                 (struct tensor_source){ .read = read_columns,
                                                         .check = source ? tensor_source_check_codes : NULL,
                                                         .codes = tensor,
                                                         .label = source ? source->label : NULL,
                                                         .why = source ? source->why : NULL,
                                                         .col_first = (int)first });
    const struct tensor **parts = ARENA_NEW(arena, const struct tensor *, tensor->shape[0]); // each expert's columns
    for (int64_t i = 0; i < tensor->shape[0]; i++)
        parts[i] = tensor_source_columns(arena, source->parts[i], first, count);
    return tensor_source_stack(arena, shape.name, parts, (int)tensor->shape[0]);
}

// ---- strided and transposed plain tensors ----

static void read_transposed(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct tensor_source *source = tensor->source;
    size_t value = dtype_bytes(tensor->dtype, 1), line = row_bytes(source->codes);
    int64_t rows = tensor_rows(tensor), cols = tensor_cols(tensor);
    for (int64_t row = first; row < first + count; row++) {
        size_t at = (size_t)(row / rows * cols) * line
            + (size_t)(source->row_first + row % rows * source->row_step) * value;
        for (int64_t col = 0; col < cols; col++)
            memcpy((char *)out + ((size_t)((row - first) * cols + col)) * value,
                   source->codes->data + at + (size_t)col * line, value);
    }
}

const struct tensor *tensor_source_transpose(struct arena *arena, const struct tensor *tensor, int first, int step)
{
    struct tensor shape = *tensor;
    shape.shape[1] = tensor->shape[2] / step;
    shape.shape[2] = tensor->shape[1];
    shape.name = arena_format(arena, "%s (%d of %d)", tensor->name, first + 1, step);
    return tensor_source_new(
        arena, shape,
        (struct tensor_source){ .read = read_transposed, .codes = tensor, .row_first = first, .row_step = step });
}

static void read_every(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct tensor_source *source = tensor->source;
    size_t value = dtype_bytes(tensor->dtype, 1);
    int64_t width = last_extent(tensor);
    for (int64_t i = 0; i < count * width; i++)
        memcpy((char *)out + (size_t)i * value,
               source->codes->data + (size_t)((first * width + i) * source->row_step + source->row_first) * value,
               value);
}

const struct tensor *tensor_source_stride(struct arena *arena, const struct tensor *tensor, int first, int step)
{
    struct tensor shape = *tensor;
    shape.shape[tensor->rank - 1] /= step;
    shape.name = arena_format(arena, "%s (%d of %d)", tensor->name, first + 1, step);
    return tensor_source_new(
        arena, shape,
        (struct tensor_source){ .read = read_every, .codes = tensor, .row_first = first, .row_step = step });
}

// ---- scales ----

float tensor_source_scale(const struct tensor *scales, int64_t index)
{
    const char *at = scales->data + (size_t)index * dtype_bytes(scales->dtype, 1);
    float value;
    uint16_t half;
    memcpy(&half, at, scales->dtype == DTYPE_F16 || scales->dtype == DTYPE_BF16 ? sizeof half : 1);
    switch (scales->dtype) {
    case DTYPE_F16: return f16_to_f32(half);
    case DTYPE_BF16: return bf16_to_f32(half);
    case DTYPE_F32: memcpy(&value, at, sizeof value); return value;
    default: return e8m0_to_f32((uint8_t)*at);
    }
}

bool tensor_source_check_scales(const struct tensor *tensor, struct error *err)
{
    const struct tensor_source *source = tensor->source;
    int64_t count = tensor_values(source->scales);
    float most = tensor->dtype == DTYPE_F16 ? F16_SCALE_MAX : source->factor > 0 ? F16_MAX / source->factor : INFINITY;
    for (int64_t i = 0; i < count; i++) {
        float scale = fabsf(tensor_source_scale(source->scales, i));
        if (!(scale <= most && scale < INFINITY))
            return fail(err,
                        "tensor %s holds %g at %lld; scales of weights are numbers, and not as large, so the file "
                        "is damaged",
                        source->scales->name, (double)scale, (long long)i);
    }
    return true;
}

static void read_scale(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    float scale = tensor_source_scale(tensor->source->codes, 0);
    (void)first;
    (void)count;
    memcpy(out, &scale, sizeof scale);
}

static void read_divisor(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    float scale = 1 / tensor_source_scale(tensor->source->codes, 0); // checked by check_overall
    (void)first;
    (void)count;
    memcpy(out, &scale, sizeof scale);
}

static bool check_overall(const struct tensor *tensor, struct error *err)
{
    float value = tensor_source_scale(tensor->source->codes, 0);
    bool divides = tensor->source->read == read_divisor;
    if (!(value > 0 && isfinite(value)))
        return fail(err, "tensor %s is %g; an overall scale must be a positive number, so the file is damaged",
                    tensor->name, (double)value);
    if (divides ? value < 1 / OVERALL_LIKELY : value > OVERALL_LIKELY)
        return fail(err,
                    "tensor %s is %g, which looks like a %s; here it is a %s (the other one's reciprocal), so the "
                    "declaration and the weights do not belong together",
                    tensor->name, (double)value, divides ? "factor" : "divisor", divides ? "divisor" : "factor");
    return true;
}

const struct tensor *tensor_source_global_scale(struct arena *arena, const struct tensor *tensor, bool divides)
{
    return tensor_source_new(
        arena, (struct tensor){ .name = tensor->name, .dtype = DTYPE_F32, .rank = 1, .shape = { 1 } },
        (struct tensor_source){ .read = divides ? read_divisor : read_scale, .check = check_overall, .codes = tensor });
}

const struct tensor *tensor_source_unscale(struct arena *arena)
{
    static const float undo = 1 / SCALE_FACTOR;
    struct tensor *tensor = ARENA_NEW(arena, struct tensor, 1);
    *tensor = (struct tensor){ .name = "factor",
                               .dtype = DTYPE_F32,
                               .rank = 1,
                               .shape = { 1 },
                               .data = (const char *)&undo,
                               .bytes = sizeof undo };
    return tensor;
}
