// SPDX-License-Identifier: Apache-2.0
// kernel/x86/gated_delta.c: the gated delta rule, recurrent form. The columns of a head's state matrix are independent:
// a tile of them stays in cache for all tokens of a sequence, and lanes are columns. No FMA is used, so results are
// bit-equal to the reference.
#include "kernel/kernel.h"
#include "kernel/ref/gated_delta.h"
#include "kernel/state.h"
#include "kernel/x86/table.h"
#include "kernel/x86/vector.h"

enum { DELTA_VECTORS = 4, DELTA_COLUMNS = DELTA_VECTORS * LANES };

struct delta_tile {
    float matrix[GATED_DELTA_KEYS_MAX * DELTA_COLUMNS]; // (keys, columns); padding columns are 0
    int keys, first, columns;                           // the columns' place in the head
} __attribute__((aligned(64)));

// The number of a vector's lanes that are real columns.
ALWAYS_INLINE int delta_lanes(const struct delta_tile *tile, int vector)
{
    int left = tile->columns - vector * LANES;
    return left < 0 ? 0 : left < LANES ? left : LANES;
}

ALWAYS_INLINE vec delta_load(const float *x, int lanes)
{
    return lanes == LANES ? vec_load(x) : lanes ? vec_load_part(x, lanes) : vec_set(0);
}

ALWAYS_INLINE void delta_store(float *out, vec x, int lanes)
{
    if (lanes == LANES)
        vec_store(out, x);
    else if (lanes)
        vec_store_part(out, x, lanes);
}

static void delta_load_tile(struct delta_tile *tile, const float *matrix, int values)
{
    for (int key = 0; key < tile->keys; key++)
        for (int i = 0; i < DELTA_VECTORS; i++) {
            const float *from = matrix + (size_t)key * (size_t)values + tile->first + i * LANES;
            vec_store(tile->matrix + key * DELTA_COLUMNS + i * LANES, delta_load(from, delta_lanes(tile, i)));
        }
}

static void delta_store_tile(const struct delta_tile *tile, float *matrix, int values)
{
    for (int key = 0; key < tile->keys; key++)
        for (int i = 0; i < DELTA_VECTORS; i++)
            delta_store(matrix + (size_t)key * (size_t)values + tile->first + i * LANES,
                        vec_load(tile->matrix + key * DELTA_COLUMNS + i * LANES), delta_lanes(tile, i));
}

static void delta_step_tile(struct delta_tile *tile, const struct delta_step *step)
{
    vec predicted[DELTA_VECTORS], change[DELTA_VECTORS], sum[DELTA_VECTORS];
    vec decay = vec_set(step->decay), beta = vec_set(step->beta);
    for (int i = 0; i < DELTA_VECTORS; i++)
        predicted[i] = sum[i] = vec_set(0);
    for (int key = 0; key < tile->keys; key++)
        for (int i = 0; i < DELTA_VECTORS; i++)
            predicted[i] += vec_load(tile->matrix + key * DELTA_COLUMNS + i * LANES) * vec_set(step->key[key]);
    for (int i = 0; i < DELTA_VECTORS; i++)
        change[i] = beta
            * (delta_load(step->value + tile->first + i * LANES, delta_lanes(tile, i)) - decay * predicted[i]);
    for (int key = 0; key < tile->keys; key++)
        for (int i = 0; i < DELTA_VECTORS; i++) {
            float *at = tile->matrix + key * DELTA_COLUMNS + i * LANES;
            vec s = decay * vec_load(at) + vec_set(step->key[key]) * change[i];
            vec_store(at, s);
            sum[i] += s * vec_set(step->query[key]);
        }
    for (int i = 0; i < DELTA_VECTORS; i++)
        delta_store(step->out + tile->first + i * LANES, sum[i], delta_lanes(tile, i));
}

static void delta_columns(const struct gated_delta_args *args, const struct batch_sequence *sequence, int head,
                          int first)
{
    const struct kv_state *layout = &args->state.layout;
    size_t at = (size_t)head * (size_t)layout->keys * (size_t)layout->values;
    const uint8_t *before = state_before(&args->state, args->batch, sequence);
    uint8_t *after = state_after(&args->state, args->batch, sequence);
    int left = layout->values - first;
    struct delta_tile tile;
    tile.keys = layout->keys;
    tile.first = first;
    tile.columns = left < DELTA_COLUMNS ? left : DELTA_COLUMNS;
    if (before)
        delta_load_tile(&tile, (const float *)(const void *)(before + layout->matrix_offset) + at, layout->values);
    else
        memset(tile.matrix, 0, (size_t)tile.keys * DELTA_COLUMNS * sizeof(float));
    for (int row = sequence->first; row < sequence->first + sequence->count; row++) {
        struct delta_step step;
        delta_step_of(args, row, head, &step);
        delta_step_tile(&tile, &step);
    }
    delta_store_tile(&tile, state_matrix(&args->state, after) + at, layout->values);
}

void ISA_NAME(gated_delta)(const void *arguments, int chunk, int chunks)
{
    const struct gated_delta_args *args = arguments;
    int heads = args->state.layout.heads, first, end;
    int tiles = (args->state.layout.values + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    kernel_range(args->batch->sequences * heads * tiles, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++)
        delta_columns(args, &args->batch->sequence[i / (heads * tiles)], i / tiles % heads, i % tiles * DELTA_COLUMNS);
}
