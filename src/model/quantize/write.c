// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/minifloat.h"
#include "kernel/ref/weight.h"
#include "model/stored.h"

enum { SLICE_VALUES = 2 << 20, COPY_BYTES = 16 << 20 };

struct row {
    float amax;
    double error, energy;
    double variance; // of its result, for inputs of the importance that is known
};

// Some rows of an item on their way.
struct slice {
    const struct item *item;
    int64_t first, rows;
    float scale;           // of all values
    weight_encoder *encode; // NULL: the rows are only measured
    float *importance;      // of columns, or NULL; heap
    float global;
    size_t code_bytes, scale_bytes, raw_bytes; // of a row
    float *values;         // (rows, cols)
    uint8_t *raw;          // the same as the tensor has it, where that is made
    uint8_t *codes, *scales;
    struct row *results;   // by row
    size_t values_room, raw_room, codes_room, scales_room, results_room;
};

void write_open(struct writing *writing)
{
    writing->slice = memory_new(1, sizeof *writing->slice);
}

void write_close(struct writing *writing)
{
    struct slice *slice = writing->slice;
    if (!slice)
        return;
    free(slice->values);
    free(slice->raw);
    free(slice->codes);
    free(slice->scales);
    free(slice->results);
    free(slice->importance);
    free(slice);
    writing->slice = NULL;
}

// ---- rows in ----

// Which row of the tensor a row of the item is.
static int64_t source_row(const struct item *item, int64_t row)
{
    if (!item->turned)
        return item->first + row;
    int64_t head = row / item->head_rows, at = row % item->head_rows, half = item->turned / 2;
    if (at < item->turned)
        at = at < half ? 2 * at : 2 * (at - half) + 1;
    return item->first + head * item->head_rows + at;
}

static const void *raw_row(const struct tensor *tensor, int64_t row, size_t bytes, uint8_t *room)
{
    if (!tensor->stored)
        return tensor->data + (size_t)row * bytes;
    stored_read(tensor, row, 1, room);
    return room;
}

static void read_row(const struct slice *slice, int64_t row)
{
    const struct item *item = slice->item;
    size_t cols = (size_t)item->cols;
    float *values = slice->values + (size_t)row * cols;
    const void *raw = raw_row(item->tensor, source_row(item, slice->first + row), slice->raw_bytes,
                              slice->raw + (size_t)row * slice->raw_bytes);
    weight_decode(item->tensor->dtype, raw, cols, values);
    for (size_t i = 0; i < cols && slice->scale != 1; i++)
        values[i] *= slice->scale;
    for (size_t i = 0; i < cols && item->offset != 0; i++)
        values[i] += item->offset;
}

static void run_slice(void *context, int phase, int part, int parts)
{
    struct slice *slice = context;
    (void)phase;
    size_t cols = (size_t)slice->item->cols;
    int64_t first = slice->rows * part / parts, end = slice->rows * (part + 1) / parts;
    for (int64_t row = first; row < end; row++) {
        const float *values = slice->values + (size_t)row * cols;
        struct row *result = &slice->results[row];
        read_row(slice, row);
        result->amax = weight_amax(values, cols);
        if (!slice->encode || isnan(result->amax))
            continue;
        result->error = slice->encode(&(struct weight_row){ values, slice->importance, cols, slice->global },
                                      slice->codes + (size_t)row * slice->code_bytes,
                                      slice->scales + (size_t)row * slice->scale_bytes);
        result->energy = weight_energy(values, NULL, cols);
        result->variance = slice->importance ? weight_energy(values, slice->importance, cols) : result->energy;
    }
}

// ---- slices ----

static void *make_room(void *old, size_t *room, size_t bytes)
{
    if (bytes <= *room)
        return old;
    *room = bytes;
    free(old);
    return memory_new(bytes, 1);
}

static float read_scale(const struct item *item)
{
    float scale = 1;
    uint8_t raw[sizeof scale];
    if (item->scale) {
        size_t bytes = (size_t)dtype_table[item->scale->dtype].block_bytes;
        weight_decode(item->scale->dtype, raw_row(item->scale, item->expert, bytes, raw), 1, &scale);
    }
    return scale;
}

static int64_t prepare_slices(struct slice *slice, const struct item *item, weight_encoder *encode, float global)
{
    size_t cols = (size_t)item->cols;
    int64_t rows = SLICE_VALUES / item->cols > 1 ? SLICE_VALUES / item->cols : 1;
    rows = rows < item->rows ? rows : item->rows;
    slice->item = item, slice->encode = encode, slice->global = global, slice->scale = read_scale(item);
    slice->raw_bytes = dtype_bytes(item->tensor->dtype, cols);
    free(slice->importance);
    slice->importance = encode && item->linear ? importance_of(item->input, item->cols) : NULL;
    size_t each = (size_t)rows;
    slice->values = make_room(slice->values, &slice->values_room, each * cols * sizeof *slice->values);
    slice->raw = make_room(slice->raw, &slice->raw_room, item->tensor->stored ? each * slice->raw_bytes : 1);
    slice->codes = make_room(slice->codes, &slice->codes_room, each * slice->code_bytes + 1);
    slice->scales = make_room(slice->scales, &slice->scales_room, each * slice->scale_bytes + 1);
    slice->results = make_room(slice->results, &slice->results_room, each * sizeof *slice->results);
    return rows;
}

static bool read_slice(struct writing *writing, int64_t first, int64_t rows, struct error *err)
{
    struct slice *slice = writing->slice;
    slice->first = first, slice->rows = rows;
    team_run(writing->team, &(struct team_work){ .run = run_slice, .context = slice, .phases = 1, .divisible = true });
    for (int64_t row = 0; row < rows; row++)
        if (isnan(slice->results[row].amax))
            return fail(err, "tensor %s holds a value that is no finite number, in row %lld; the checkpoint is damaged",
                        slice->item->tensor->name, (long long)source_row(slice->item, first + row));
    writing->done += (double)(rows * slice->item->cols);
    return !writing->progress || writing->progress(writing->progress_context, writing->done / writing->total)
        || fail(err, "interrupted");
}

static bool check(const struct item *item, struct error *err)
{
    return stored_check(item->tensor, err) && (!item->scale || stored_check(item->scale, err));
}

bool write_measure(struct writing *writing, const struct item *item, float *amax, struct error *err)
{
    struct slice *slice = writing->slice;
    if (!check(item, err))
        return false;
    int64_t each = prepare_slices(slice, item, NULL, 1);
    for (int64_t first = 0; first < item->rows; first += each) {
        int64_t rows = item->rows - first < each ? item->rows - first : each;
        if (!read_slice(writing, first, rows, err))
            return false;
        for (int64_t row = 0; row < rows; row++)
            *amax = fmaxf(*amax, slice->results[row].amax);
    }
    return true;
}

static bool write_slices(struct writing *writing, const struct item *item, weight_encoder *encode, float global,
                         struct layout_entries entries, struct write_result *result, struct error *err)
{
    struct slice *slice = writing->slice;
    if (!check(item, err))
        return false;
    int64_t each = prepare_slices(slice, item, encode, global);
    *result = (struct write_result){ 0 };
    for (int64_t first = 0; first < item->rows; first += each) {
        int64_t rows = item->rows - first < each ? item->rows - first : each;
        if (!read_slice(writing, first, rows, err)
            || !safetensors_out_put(writing->out, entries.codes, (size_t)first * slice->code_bytes, slice->codes,
                                    (size_t)rows * slice->code_bytes, err)
            || (slice->scale_bytes
                && !safetensors_out_put(writing->out, entries.scales, (size_t)first * slice->scale_bytes, slice->scales,
                                        (size_t)rows * slice->scale_bytes, err)))
            return false;
        for (int64_t row = 0; row < rows; row++) {
            result->error += slice->results[row].error;
            result->energy += slice->results[row].energy;
            if (item->result)
                item->result->rows[first + row] = (float)slice->results[row].variance;
        }
    }
    if (item->result)
        item->result->known = true;
    return true;
}

// ---- ways out ----

bool write_encoded(struct writing *writing, const struct item *item, const struct layout *layout, float global,
                   struct layout_entries entries, struct write_result *result, struct error *err)
{
    float overall = layout->divides ? 1 / global : global; // exact: a power of two
    writing->slice->code_bytes = layout_code_bytes(layout, item->cols);
    writing->slice->scale_bytes = layout_scale_bytes(layout, item->cols);
    return write_slices(writing, item, layout->encode, global, entries, result, err)
        && (!layout->overall || safetensors_out_put(writing->out, entries.overall, 0, &overall, sizeof overall, err));
}

static double encode_f32(const struct weight_row *row, void *codes, void *scales)
{
    (void)scales;
    memcpy(codes, row->x, row->count * sizeof *row->x);
    return 0;
}

static double encode_bf16(const struct weight_row *row, void *codes, void *scales)
{
    (void)scales;
    double sum = 0;
    uint16_t *out = codes;
    for (size_t i = 0; i < row->count; i++)
        out[i] = f32_to_bf16(row->x[i]);
    for (size_t i = 0; i < row->count; i++) {
        double off = (double)bf16_to_f32(out[i]) - row->x[i];
        sum += off * off;
    }
    return sum;
}

bool write_floats(struct writing *writing, const struct item *item, enum dtype dtype, size_t entry,
                  struct write_result *result, struct error *err)
{
    writing->slice->code_bytes = (size_t)item->cols * (size_t)dtype_table[dtype].block_bytes;
    writing->slice->scale_bytes = 0;
    return write_slices(writing, item, dtype == DTYPE_F32 ? encode_f32 : encode_bf16, 1,
                        (struct layout_entries){ .codes = entry }, result, err);
}

bool write_verbatim(struct writing *writing, const struct item *item, size_t entry, struct error *err)
{
    const struct tensor *tensor = item->tensor;
    for (size_t at = 0; at < tensor->bytes; at += COPY_BYTES) {
        size_t some = tensor->bytes - at < COPY_BYTES ? tensor->bytes - at : COPY_BYTES;
        if (!safetensors_out_put(writing->out, entry, at, tensor->data + at, some, err))
            return false;
    }
    writing->done += (double)tensor_values(tensor);
    return !writing->progress || writing->progress(writing->progress_context, writing->done / writing->total)
        || fail(err, "interrupted");
}
