// SPDX-License-Identifier: Apache-2.0
// kernel/x86/per_head_linear.c: a batched GEMM with one small matrix per head (MLA's w_uk and w_uv). A few rows of a
// matrix are widened to f32 and transposed at a time, and used for every token; lanes are rows, and sums run over the
// channels in order.
#include <assert.h>

#include "kernel/kernel.h"
#include "kernel/ref/weight.h"
#include "kernel/x86/table.h"
#include "kernel/x86/vector.h"

enum { HEADS_VECTORS = 2, HEADS_ROWS = HEADS_VECTORS * LANES, HEADS_TOKENS = 4 }; // of a tile

struct head_tile {
    float weight[LATENT_DIM_MAX * HEADS_ROWS]; // (in, row); padding rows are 0
    int head, row, rows;                       // of the head's matrix
} __attribute__((aligned(64)));

// The tail that fills no vector uses the reference; both are exact.
static void widen(enum dtype dtype, const uint8_t *in, int count, float *out)
{
    int i = 0;
    for (; dtype == DTYPE_BF16 && i + LANES <= count; i += LANES)
        vec_store(out + i, vec_from_bf16(half_load(in + 2 * i)));
    for (; dtype == DTYPE_F16 && i + LANES <= count; i += LANES)
        vec_store(out + i, vec_from_f16(half_load(in + 2 * i)));
    size_t done = dtype_bytes(dtype, (size_t)i);
    weight_decode(dtype, in + done, (size_t)(count - i), out + i);
}

static void take_tile(const struct per_head_linear_args *args, int head, int row, struct head_tile *out)
{
    float line[LANES][LATENT_DIM_MAX] __attribute__((aligned(64))); // values after `in` are not used
    size_t row_bytes = dtype_bytes(args->weight.dtype, (size_t)args->in);
    const uint8_t *rows = (const uint8_t *)args->weight.data + (size_t)(head * args->out + row) * row_bytes;
    out->head = head;
    out->row = row;
    out->rows = args->out - row < HEADS_ROWS ? args->out - row : HEADS_ROWS;
    for (int first = 0; first < HEADS_ROWS; first += LANES) {
        for (int i = 0; i < LANES; i++)
            if (first + i < out->rows)
                widen(args->weight.dtype, rows + (size_t)(first + i) * row_bytes, args->in, line[i]);
            else
                memset(line[i], 0, (size_t)args->in * sizeof(float));
        for (int k = 0; k < args->in; k += LANES) {
            vec columns[LANES];
            for (int i = 0; i < LANES; i++)
                columns[i] = vec_load(line[i] + k);
            transpose(columns);
            for (int i = 0; i < LANES && k + i < args->in; i++)
                vec_store(out->weight + (k + i) * HEADS_ROWS + first, columns[i]);
        }
    }
}

// Multiplies a tile with `tokens` tokens (a constant after inlining).
ALWAYS_INLINE void multiply(const struct per_head_linear_args *args, const struct head_tile *tile, int token,
                            int tokens)
{
    size_t x_dim = (size_t)(args->in + args->rest), x_row = (size_t)args->heads * x_dim;
    size_t y_dim = (size_t)(args->out + args->rest), y_row = (size_t)args->heads * y_dim;
    const float *x = args->x + (size_t)token * x_row + (size_t)tile->head * x_dim;
    float *y = args->y + (size_t)token * y_row + (size_t)tile->head * y_dim + tile->row;
    vec sum[HEADS_TOKENS][HEADS_VECTORS];
    for (int t = 0; t < tokens; t++)
        for (int i = 0; i < HEADS_VECTORS; i++)
            sum[t][i] = vec_set(0);
    for (int k = 0; k < args->in; k++)
        for (int t = 0; t < tokens; t++) {
            vec value = vec_set(x[(size_t)t * x_row + (size_t)k]);
            for (int i = 0; i < HEADS_VECTORS; i++)
                sum[t][i] = vec_fma(vec_load(tile->weight + k * HEADS_ROWS + i * LANES), value, sum[t][i]);
        }
    for (int t = 0; t < tokens; t++)
        for (int i = 0; i < HEADS_VECTORS; i++) {
            int left = tile->rows - i * LANES;
            vec result = sum[t][i] * vec_set(args->weight.scale);
            if (left >= LANES)
                vec_store(y + (size_t)t * y_row + i * LANES, result);
            else if (left > 0)
                vec_store_part(y + (size_t)t * y_row + i * LANES, result, left);
        }
}

static void copy_rest(const struct per_head_linear_args *args, int head)
{
    size_t x_dim = (size_t)(args->in + args->rest), y_dim = (size_t)(args->out + args->rest);
    for (int token = 0; token < *args->rows; token++) {
        size_t at = (size_t)token * (size_t)args->heads + (size_t)head;
        memcpy(args->y + at * y_dim + args->out, args->x + at * x_dim + args->in, (size_t)args->rest * sizeof(float));
    }
}

void ISA_NAME(per_head_linear)(const void *arguments, int chunk, int chunks)
{
    const struct per_head_linear_args *args = arguments;
    int tiles = (args->out + HEADS_ROWS - 1) / HEADS_ROWS, first, end;
    struct head_tile tile;
    assert(args->in <= LATENT_DIM_MAX);
    kernel_range(args->heads * tiles, chunk, chunks, &first, &end);
    for (int i = first; i < end; i++) {
        int token = 0;
        take_tile(args, i / tiles, i % tiles * HEADS_ROWS, &tile);
        for (; token + HEADS_TOKENS <= *args->rows; token += HEADS_TOKENS)
            multiply(args, &tile, token, HEADS_TOKENS);
        for (; token < *args->rows; token++)
            multiply(args, &tile, token, 1);
        if (tile.row == 0)
            copy_rest(args, tile.head);
    }
}
