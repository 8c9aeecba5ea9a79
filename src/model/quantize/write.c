// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/minifloat.h"
#include "kernel/ref/weight.h"
#include "model/tensor_source.h"

enum { SLICE_VALUES = 2 << 20, COPY_BYTES = 16 << 20, TILES_PER_THREAD = 2 };

struct row {
    float amax;
    double error, energy;
    double variance; // of its result, given the inputs' importance
};

// How rows are encoded.
struct encoding {
    weight_encoder *encode; // NULL: only measure
    gptq_encoder *gptq;     // instead, where there is a factor
    const float *factor;
    float global;
};

// Rows of an item in conversion.
struct slice {
    const struct item *item;
    int64_t first, rows;
    float scale; // of all values
    struct encoding encoding;
    float *importance;                         // of columns, or NULL; heap
    float *scratch;                            // of tiles, one after the other
    size_t code_bytes, scale_bytes, raw_bytes; // of a row
    float *values;                             // (rows, cols)
    uint8_t *raw;                              // the rows in the tensor's dtype, if converted by a source
    uint8_t *codes, *scales;
    struct row *results; // by row
    size_t values_room, raw_room, codes_room, scales_room, results_room, scratch_room;
};

bool write_advance(struct writing *writing, double values, struct error *err)
{
    writing->done += values;
    return !writing->progress || writing->progress(writing->progress_context, writing->done / writing->total)
        || fail(err, "interrupted");
}

void write_open(struct writing *writing) { writing->slice = memory_new(1, sizeof *writing->slice); }

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
    free(slice->scratch);
    free(slice->importance);
    free(slice);
    writing->slice = NULL;
}

// ---- reading rows ----

// The tensor's row for a row of the item.
static int64_t source_row(const struct item *item, int64_t row)
{
    if (!item->rotary)
        return item->first + row;
    int64_t head = row / item->head_rows, at = row % item->head_rows, half = item->rotary / 2;
    if (at < item->rotary)
        at = at < half ? 2 * at : 2 * (at - half) + 1;
    return item->first + head * item->head_rows + at;
}

static const void *raw_row(const struct tensor *tensor, int64_t row, size_t bytes, uint8_t *room)
{
    if (!tensor->source)
        return tensor->data + (size_t)row * bytes;
    tensor_source_read(tensor, row, 1, room);
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

static void encode_row(const struct slice *slice, int64_t row)
{
    size_t cols = (size_t)slice->item->cols;
    slice->results[row].error = slice->encoding.encode(&(struct weight_row){ .x = slice->values + (size_t)row * cols,
                                                                             .importance = slice->importance,
                                                                             .count = cols,
                                                                             .global = slice->encoding.global },
                                                       slice->codes + (size_t)row * slice->code_bytes,
                                                       slice->scales + (size_t)row * slice->scale_bytes);
}

static void gptq_rows(const struct slice *slice, int64_t first, int rows)
{
    size_t cols = (size_t)slice->item->cols, at = (size_t)first;
    double errors[GPTQ_TILE_ROWS];
    const struct gptq_tile tile = { .x = slice->values + at * cols,
                                    .rows = rows,
                                    .count = cols,
                                    .global = slice->encoding.global,
                                    .factor = slice->encoding.factor,
                                    .scratch = slice->scratch + at / GPTQ_TILE_ROWS * gptq_scratch(cols),
                                    .error = errors };
    slice->encoding.gptq(&tile, slice->codes + at * slice->code_bytes, slice->scales + at * slice->scale_bytes);
    for (int i = 0; i < rows; i++)
        slice->results[first + i].error = errors[i];
}

// Converts at most a tile of rows.
static void run_rows(const struct slice *slice, int64_t first, int rows)
{
    const struct encoding *encoding = &slice->encoding;
    size_t cols = (size_t)slice->item->cols;
    bool finite = true;
    for (int64_t row = first; row < first + rows; row++) {
        const float *values = slice->values + (size_t)row * cols;
        struct row *result = &slice->results[row];
        read_row(slice, row);
        result->amax = weight_amax(values, cols);
        finite &= !isnan(result->amax);
        if (!encoding->encode || isnan(result->amax))
            continue;
        result->energy = weight_energy(values, NULL, cols);
        result->variance = slice->importance ? weight_energy(values, slice->importance, cols) : result->energy;
    }
    if (!encoding->encode || !finite)
        return;
    if (encoding->factor)
        gptq_rows(slice, first, rows);
    for (int64_t row = first; row < first + rows && !encoding->factor; row++)
        encode_row(slice, row);
}

static void run_slice(void *context, int step, int chunk, int chunks)
{
    struct slice *slice = context;
    (void)step;
    int64_t tiles = (slice->rows + GPTQ_TILE_ROWS - 1) / GPTQ_TILE_ROWS;
    for (int64_t tile = tiles * chunk / chunks; tile < tiles * (chunk + 1) / chunks; tile++) {
        int64_t first = tile * GPTQ_TILE_ROWS, rest = slice->rows - first;
        run_rows(slice, first, rest < GPTQ_TILE_ROWS ? (int)rest : GPTQ_TILE_ROWS);
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

// Rows per slice: whole tiles, enough for all threads.
static int64_t rows_each(const struct item *item, int threads)
{
    int64_t tiles = SLICE_VALUES / item->cols / GPTQ_TILE_ROWS, least = TILES_PER_THREAD * (int64_t)threads;
    int64_t rows = (tiles > least ? tiles : least) * GPTQ_TILE_ROWS;
    return rows < item->rows ? rows : item->rows;
}

static int64_t prepare_slices(struct writing *writing, const struct item *item, struct encoding encoding)
{
    struct slice *slice = writing->slice;
    size_t cols = (size_t)item->cols;
    int64_t rows = rows_each(item, thread_pool_size(writing->pool));
    slice->item = item, slice->encoding = encoding, slice->scale = read_scale(item);
    slice->raw_bytes = dtype_bytes(item->tensor->dtype, cols);
    free(slice->importance);
    slice->importance = encoding.encode && item->linear ? importance_of(item->input, item->cols) : NULL;
    size_t each = (size_t)rows, tiles = (each + GPTQ_TILE_ROWS - 1) / GPTQ_TILE_ROWS;
    slice->values = make_room(slice->values, &slice->values_room, each * cols * sizeof *slice->values);
    slice->raw = make_room(slice->raw, &slice->raw_room, item->tensor->source ? each * slice->raw_bytes : 1);
    slice->codes = make_room(slice->codes, &slice->codes_room, each * slice->code_bytes + 1);
    slice->scales = make_room(slice->scales, &slice->scales_room, each * slice->scale_bytes + 1);
    slice->results = make_room(slice->results, &slice->results_room, each * sizeof *slice->results);
    slice->scratch = make_room(slice->scratch, &slice->scratch_room,
                               encoding.factor ? tiles * gptq_scratch(cols) * sizeof *slice->scratch : 1);
    return rows;
}

static bool read_slice(struct writing *writing, int64_t first, int64_t rows, struct error *err)
{
    struct slice *slice = writing->slice;
    slice->first = first, slice->rows = rows;
    thread_pool_run(writing->pool,
                    &(struct thread_pool_work){ .run = run_slice, .context = slice, .steps = 1, .divisible = true });
    for (int64_t row = 0; row < rows; row++)
        if (isnan(slice->results[row].amax))
            return fail(err, "tensor %s holds a value that is no finite number, in row %lld; the checkpoint is damaged",
                        slice->item->tensor->name, (long long)source_row(slice->item, first + row));
    return write_advance(writing, (double)(rows * slice->item->cols), err);
}

static bool check(const struct item *item, struct error *err)
{
    return tensor_source_check(item->tensor, err) && (!item->scale || tensor_source_check(item->scale, err));
}

bool write_measure(struct writing *writing, const struct item *item, float *amax, struct error *err)
{
    struct slice *slice = writing->slice;
    if (!check(item, err))
        return false;
    int64_t each = prepare_slices(writing, item, (struct encoding){ 0 });
    for (int64_t first = 0; first < item->rows; first += each) {
        int64_t rows = item->rows - first < each ? item->rows - first : each;
        if (!read_slice(writing, first, rows, err))
            return false;
        for (int64_t row = 0; row < rows; row++)
            *amax = fmaxf(*amax, slice->results[row].amax);
    }
    return true;
}

static bool write_slices(struct writing *writing, const struct item *item, struct encoding encoding,
                         struct layout_entries entries, struct write_result *result, struct error *err)
{
    struct slice *slice = writing->slice;
    if (!check(item, err))
        return false;
    int64_t each = prepare_slices(writing, item, encoding);
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

// ---- writing ----

bool write_encoded(struct writing *writing, const struct item *item, const struct layout *layout, float global,
                   const float *factor, struct layout_entries entries, struct write_result *result, struct error *err)
{
    const struct encoding encoding = { layout->encode, layout->gptq, factor, global };
    float overall = layout->divides ? 1 / global : global; // exact, since global is a power of two
    writing->slice->code_bytes = layout_code_bytes(layout, item->cols);
    writing->slice->scale_bytes = layout_scale_bytes(layout, item->cols);
    return write_slices(writing, item, encoding, entries, result, err)
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
    const struct encoding encoding = { .encode = dtype == DTYPE_F32 ? encode_f32 : encode_bf16 };
    return write_slices(writing, item, encoding, (struct layout_entries){ .codes = entry }, result, err);
}

bool write_verbatim(struct writing *writing, const struct item *item, size_t entry, struct error *err)
{
    const struct tensor *tensor = item->tensor;
    for (size_t at = 0; at < tensor->bytes; at += COPY_BYTES) {
        size_t some = tensor->bytes - at < COPY_BYTES ? tensor->bytes - at : COPY_BYTES;
        if (!safetensors_out_put(writing->out, entry, at, tensor->data + at, some, err))
            return false;
    }
    return write_advance(writing, (double)tensor_values(tensor), err);
}
