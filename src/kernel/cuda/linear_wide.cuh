// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_wide.cuh: what the kernels of wide GEMM have in common: where a tile of rows is, and what
// becomes of its sums. Small matrices are split along k over several blocks; linear_wide_add adds their sums in order.
#ifndef KERNEL_CUDA_LINEAR_WIDE_CUH
#define KERNEL_CUDA_LINEAR_WIDE_CUH

#include "kernel/cuda/linear_decode.cuh"

// A tile of rows of the op's matrices, which are one behind the other.
struct wide_tile {
    int output, row; // its first in a matrix
    int column;      // where its matrix begins among all rows of the op
    int token;       // the first
};

DEVICE struct wide_tile wide_tile_of(const struct cuda_linear &p, int index, int rows)
{
    struct wide_tile tile = {};
    while (tile.output + 1 < p.outputs && index >= (p.output[tile.output].rows + rows - 1) / rows) {
        index -= (p.output[tile.output].rows + rows - 1) / rows;
        tile.column += p.output[tile.output++].rows;
    }
    tile.row = index * rows;
    return tile;
}

// Returns the rows of all matrices of the op.
DEVICE int wide_rows(const struct cuda_linear &p)
{
    int rows = 0;
    for (int i = 0; i < p.outputs; i++)
        rows += p.output[i].rows;
    return rows;
}

// ---- what a warp has summed ----
// Sixteen rows, as a tensor core leaves them with the lanes: tokens eight by eight; of these, lane l has tokens
// 2 (l % 4) and the next of rows l / 4 and l / 4 + 8. `tokens` and `rows`: how many there are from the lane's first on.

// Floats of eight neighbouring rows are whole sectors of memory.
template <int TOKENS>
DEVICE void wide_put_floats(const float sums[TOKENS / 8][4], float *to, int stride, int tokens, int rows, bool add)
{
#pragma unroll
    for (int n = 0; n < TOKENS / 8; n++, to += 8 * (size_t)stride)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *at = to + i % 2 * (size_t)stride + i / 2 * 8;
            if (n * 8 + i % 2 < tokens && i / 2 * 8 < rows)
                *at = add ? *at + sums[n][i] : sums[n][i];
        }
}

// Two neighbouring rows of bfloat16 are written together: one lane takes both of the first token, one of the second.
template <int TOKENS>
DEVICE void wide_put_pairs(const float sums[TOKENS / 8][4], uint16_t *to, int stride, int tokens, int rows)
{
    int odd = lane_index() / 4 % 2;
    to += (ptrdiff_t)odd * stride - odd;
#pragma unroll
    for (int n = 0; n < TOKENS / 8; n++, to += 8 * (size_t)stride)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            float other = __shfl_xor_sync(WARP_ALL, odd ? sums[n][i] : sums[n][i + 1], 4);
            uint32_t pair = odd ? bf16_pair(other, sums[n][i + 1]) : bf16_pair(sums[n][i], other);
            uint16_t *at = to + i * 4;
            int left = rows + odd - i * 4;
            if (n * 8 + odd >= tokens || left <= 0)
                continue;
            if (stride % 2 == 0) {
                *(uint32_t *)at = pair;
                continue;
            }
            at[0] = (uint16_t)pair;
            if (left > 1)
                at[1] = (uint16_t)(pair >> 16);
        }
}

// Where the sums are of a part of k, the `split`-th, they are left for linear_wide_add.
template <int TOKENS>
DEVICE void wide_finish(const struct cuda_linear_wide &q, const struct wide_tile &tile, int split, int row,
                        float sums[TOKENS / 8][4], int tokens)
{
    const struct cuda_linear &p = q.linear;
    const cuda_linear_output &output = p.output[tile.output];
    int first = row + lane_index() / 4, token = tile.token + lane_index() % 4 * 2, rows = output.rows - first;
    size_t at = (size_t)token * (size_t)output.rows + (size_t)first;
    tokens -= token;
    if (q.splits > 1) {
        int all = wide_rows(p);
        float *to = q.partials + ((size_t)split * (size_t)(tokens + token) + (size_t)token) * all + tile.column + first;
        return wide_put_floats<TOKENS>(sums, to, all, tokens, rows, false);
    }
    float factor = output.scale * (float)(1u << LINEAR_EXPONENT);
    float bias[2] = { output.bias && rows > 0 ? output.bias[first] : 0.0f,
                      output.bias && rows > 8 ? output.bias[first + 8] : 0.0f };
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        sums[i / 4][i % 4] = sums[i / 4][i % 4] * factor + bias[i % 4 / 2];
    if (p.residual || p.f32_out)
        wide_put_floats<TOKENS>(sums, (float *)output.y + at, output.rows, tokens, rows, p.residual);
    else
        wide_put_pairs<TOKENS>(sums, (uint16_t *)output.y + at, output.rows, tokens, rows);
}

#endif
