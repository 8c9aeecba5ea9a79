// SPDX-License-Identifier: Apache-2.0
// kernel/ref/linear.c: GEMM, y = W x + bias; the reference. A few rows of W are dequantised at a time and used for
// every token.
#include <assert.h>

#include "kernel/ref/dot.h"
#include "kernel/ref/table.h"
#include "kernel/ref/weight.h"

enum { TILE_ROWS = 4, TILE_TOKENS = 2 };

// The dot products of TILE_ROWS rows with TILE_TOKENS tokens.
static void dot_tile(const float *w, const float *const x[TILE_TOKENS], int n, float out[TILE_TOKENS][TILE_ROWS])
{
    dot_lanes sums[TILE_ROWS][TILE_TOKENS] = { { { 0 } } };
    int k = 0;
    for (; k + DOT_LANES <= n; k += DOT_LANES)
        for (int row = 0; row < TILE_ROWS; row++)
            for (int token = 0; token < TILE_TOKENS; token++)
                sums[row][token] += dot_load(w + row * n + k) * dot_load(x[token] + k);
    for (int row = 0; row < TILE_ROWS; row++)
        for (int token = 0; token < TILE_TOKENS; token++) {
            float rest = 0;
            for (int i = k; i < n; i++)
                rest += w[row * n + i] * x[token][i];
            out[token][row] = dot_finish(sums[row][token]) + rest;
        }
}

// Rows [first, first + count) of one output, count <= TILE_ROWS, for every token.
static void linear_tile(const struct linear_args *args, const struct linear_output *output, int first, int count)
{
    const struct weight *weight = &output->weight;
    int in = args->in, tokens = *args->rows;
    float tile[TILE_ROWS * in]; // on the stack: in <= LINEAR_IN_MAX, a megabyte at most
    size_t row_bytes = dtype_bytes(weight->dtype, (size_t)in);
    weight_decode(weight->dtype, (const char *)weight->data + (size_t)first * row_bytes, (size_t)in * (size_t)count,
                  tile);
    for (int i = count * in; i < TILE_ROWS * in; i++)
        tile[i] = 0;
    for (int token = 0; token < tokens; token += TILE_TOKENS) {
        float sums[TILE_TOKENS][TILE_ROWS];
        bool pair = token + 1 < tokens; // an odd last token is its own partner
        const float *x = args->x + (size_t)token * (size_t)in;
        dot_tile(tile, (const float *[]){ x, pair ? x + in : x }, in, sums);
        for (int i = 0; i <= pair; i++)
            for (int row = 0; row < count; row++)
                output->y[(size_t)(token + i) * (size_t)weight->rows + (size_t)(first + row)] =
                    sums[i][row] * weight->scale + (output->bias ? output->bias[first + row] : 0);
    }
}

void linear_ref(const void *arguments, int chunk, int chunks)
{
    const struct linear_args *args = arguments;
    assert(args->in <= LINEAR_IN_MAX);
    for (int i = 0; i < args->outputs; i++) {
        int first, end;
        kernel_range(args->output[i].weight.rows, chunk, chunks, &first, &end);
        for (int row = first; row < end; row += TILE_ROWS)
            linear_tile(args, &args->output[i], row, end - row < TILE_ROWS ? end - row : TILE_ROWS);
    }
}
