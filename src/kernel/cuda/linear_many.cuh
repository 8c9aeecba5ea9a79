// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_many.cuh: what the kernels for many tokens have in common: which part of the work a block has, and
// what becomes of its sums. Small matrices are split along k over several blocks; their sums are added in order by
// linear_many_add.
#ifndef KERNEL_CUDA_LINEAR_MANY_CUH
#define KERNEL_CUDA_LINEAR_MANY_CUH

#include "kernel/cuda/linear_decode.cuh"

// What a block works on: tiles of tokens are x of the grid, tiles of rows y, parts of a split z.
struct many_tile {
    int output, row;     // the first of its rows in a matrix
    int column;          // where its matrix begins among all rows of the op
    int token;           // the first
    int record, records; // the first, and their number
};

DEVICE struct many_tile many_tile_of(const struct cuda_linear_many &q, int rows, int tokens)
{
    const struct cuda_linear &p = q.linear;
    struct many_tile tile = {};
    int index = (int)blockIdx.y, split = (int)blockIdx.z, records = (p.in + LINEAR_RECORD - 1) / LINEAR_RECORD;
    while (tile.output + 1 < p.outputs && index >= (p.output[tile.output].rows + rows - 1) / rows) {
        index -= (p.output[tile.output].rows + rows - 1) / rows;
        tile.column += p.output[tile.output++].rows;
    }
    tile.row = index * rows;
    tile.token = (int)blockIdx.x * tokens;
    tile.record = records * split / q.splits;
    tile.records = records * (split + 1) / q.splits - tile.record;
    return tile;
}

// Of all matrices of the op.
DEVICE int many_rows(const struct cuda_linear &p)
{
    int rows = 0;
    for (int i = 0; i < p.outputs; i++)
        rows += p.output[i].rows;
    return rows;
}

DEVICE void many_store(const struct cuda_linear &p, const cuda_linear_output &output, int token, int row, float sum)
{
    float value = sum * output.scale * (float)(1u << LINEAR_EXPONENT) + (output.bias ? output.bias[row] : 0.0f);
    linear_store(p, output, token, row, value);
}

// Turns a warp's sums of GROUPS times sixteen rows around in shared memory, so that it writes neighbours. No stage is
// in use any more.
template <int GROUPS, int TOKENS>
DEVICE void many_finish(const struct cuda_linear_many &q, const struct many_tile &tile,
                        const float sums[GROUPS][TOKENS / 8][4], uint8_t *memory, int tokens)
{
    constexpr int ROWS = GROUPS * LINEAR_ROWS, STRIDE = ROWS + 4;
    const struct cuda_linear &p = q.linear;
    const cuda_linear_output &output = p.output[tile.output];
    float *turned = (float *)(memory + warp_index() * linear_turned_bytes(GROUPS, TOKENS));
    int lane = lane_index(), row = tile.row + warp_index() * ROWS + lane % ROWS;
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = n * 8 + lane % 4 * 2 + i % 2, in_warp = g * LINEAR_ROWS + lane / 4 + i / 2 * 8;
                turned[token * STRIDE + in_warp] = sums[g][n][i];
            }
    __syncwarp();
    int count = tokens - tile.token < TOKENS ? tokens - tile.token : TOKENS, all_rows = many_rows(p);
    for (int i = lane / ROWS; i < count && row < output.rows; i += WARP / ROWS) {
        int token = tile.token + i;
        float sum = turned[i * STRIDE + lane % ROWS];
        if (q.splits > 1)
            q.partials[((size_t)blockIdx.z * tokens + token) * all_rows + tile.column + row] = sum;
        else
            many_store(p, output, token, row, sum);
    }
}

#endif
