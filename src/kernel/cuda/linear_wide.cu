// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_wide.cu: mixed-precision GEMM for prefill: quantised weights are dequantised in registers for mma.
// A block has a tile of rows, 32 per warp, and a tile of tokens. Along k it goes from record to record through a ring
// of stages in shared memory: the warps' own weights, and x of all tokens, which all warps read.
#include "kernel/cuda/linear_wide.cuh"

enum { WIDE_GROUPS = LINEAR_WIDE_WARP_ROWS / LINEAR_ROWS, STAGES = LINEAR_WIDE_STAGES };
enum { RECORD_CHUNKS = LINEAR_RECORD / 8 };

// ---- into shared memory ----

// This warp's weights of a record. Groups past the matrix are not there and are left as they are.
template <class Packed>
DEVICE void wide_copy_weights(uint32_t to, const uint8_t *weight, int group, int groups, int records, int record)
{
#pragma unroll
    for (int i = 0; i < WIDE_GROUPS * Packed::BYTES / 16; i += WARP) {
        int chunk = i + lane_index(), which = chunk / (Packed::BYTES / 16), rest = chunk % (Packed::BYTES / 16);
        if (which < WIDE_GROUPS && group + which < groups)
            copy_16(to + chunk * 16, weight + ((size_t)(group + which) * records + record) * Packed::BYTES + rest * 16);
    }
}

DEVICE int x_swizzle(int token, int chunk) { return (chunk >> 3 & 1) ^ (token & 1) << 1; }

// x of a record: a row of sixteen chunks per token, in which no two lanes of an access meet in a bank.
template <int TOKENS>
DEVICE void wide_copy_x(uint32_t to, const struct cuda_linear &p, int first_token, int tokens, int record)
{
    for (int i = (int)threadIdx.x; i < TOKENS * RECORD_CHUNKS; i += (int)blockDim.x) {
        int token = i / RECORD_CHUNKS, chunk = i % RECORD_CHUNKS, k = record * LINEAR_RECORD + chunk * 8;
        bool there = first_token + token < tokens && k < p.in;
        const uint16_t *from = (const uint16_t *)p.x + (there ? (size_t)(first_token + token) * p.in + k : 0);
        copy_16(to + (token * RECORD_CHUNKS + (chunk ^ x_swizzle(token, chunk))) * 16, from, there ? 16 : 0);
    }
}

// ---- products ----

template <class Packed, int TOKENS>
DEVICE void wide_multiply(float sums[WIDE_GROUPS][TOKENS / 8][4], const uint8_t *weights, const uint8_t *x)
{
    int lane = lane_index(), token = lane / 4, first = lane % 4 * 4;
    Packed packed[WIDE_GROUPS];
#pragma unroll
    for (int g = 0; g < WIDE_GROUPS; g++)
        packed[g].load_scales(weights + g * Packed::BYTES, lane);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a[2][WIDE_GROUPS][4];
#pragma unroll
        for (int g = 0; g < WIDE_GROUPS; g++) {
            packed[g].load_chunk(weights + g * Packed::BYTES, lane, i);
            packed[g].operand(2 * i, a[0][g]);
            packed[g].operand(2 * i + 1, a[1][g]);
        }
        const uint4 *chunks = (const uint4 *)x + token * RECORD_CHUNKS + ((first + i) ^ x_swizzle(token, first));
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n += 4) { // so that products which follow each other have different sums
            uint4 b[4];
#pragma unroll
            for (int m = 0; m < 4; m++)
                b[m] = chunks[(n + m) * 8 * RECORD_CHUNKS];
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int m = 0; m < 4; m++)
#pragma unroll
                    for (int g = 0; g < WIDE_GROUPS; g++)
                        multiply(sums[g][n + m], a[j][g], j ? b[m].z : b[m].x, j ? b[m].w : b[m].y);
        }
    }
}

template <class Packed, int TOKENS> DEVICE void wide_tokens(const struct cuda_linear_wide &q)
{
    extern __shared__ __align__(16) uint8_t memory[];
    constexpr int WARP_BYTES = WIDE_GROUPS * Packed::BYTES, X_BYTES = TOKENS * LINEAR_RECORD * 2;
    const struct cuda_linear &p = q.linear;
    launch_next();
    struct wide_tile tile = wide_tile_of(p, (int)blockIdx.y, block_warps() * LINEAR_WIDE_WARP_ROWS);
    tile.token = (int)blockIdx.x * TOKENS;
    const cuda_linear_output &output = p.output[tile.output];
    int stage_bytes = block_warps() * WARP_BYTES + X_BYTES, all = (p.in + LINEAR_RECORD - 1) / LINEAR_RECORD;
    int split = (int)blockIdx.z, first = all * split / q.splits, records = all * (split + 1) / q.splits - first;
    int group = tile.row / LINEAR_ROWS + warp_index() * WIDE_GROUPS;
    int groups = (output.rows + LINEAR_ROWS - 1) / LINEAR_ROWS;
    auto x_of = [&](int i) { return memory + i % STAGES * stage_bytes; };
    auto weights_of = [&](int i) { return x_of(i) + X_BYTES + warp_index() * WARP_BYTES; };
    auto fetch_weights = [&](int i) {
        if (i < records)
            wide_copy_weights<Packed>(shared_address(weights_of(i)), output.weight, group, groups, all, first + i);
    };

#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        fetch_weights(i);
    copies_commit();
    wait_for_previous();
    int tokens = *p.rows;
    if (tile.token >= tokens) {
        copies_wait<0>();
        return;
    }
    auto fetch_x = [&](int i) {
        if (i < records)
            wide_copy_x<TOKENS>(shared_address(x_of(i)), p, tile.token, tokens, first + i);
        copies_commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        fetch_x(i);

    float sums[WIDE_GROUPS][TOKENS / 8][4] = {};
    for (int i = 0; i < records; i++) {
        copies_wait<STAGES - 2>();
        __syncthreads(); // all warps' copies are there, and all have read the stage before
        fetch_weights(i + STAGES - 1);
        fetch_x(i + STAGES - 1);
        wide_multiply<Packed, TOKENS>(sums, weights_of(i), x_of(i));
    }
    copies_wait<0>();
#pragma unroll
    for (int g = 0; g < WIDE_GROUPS; g++)
        wide_finish<TOKENS>(q, tile, split, tile.row + (warp_index() * WIDE_GROUPS + g) * LINEAR_ROWS, sums[g], tokens);
}

#define KERNEL(kind, tokens, blocks, ...)                                                \
    extern "C" __global__ void __launch_bounds__(LINEAR_WIDE_WARPS_MAX *WARP, blocks)    \
        linear_wide_##kind##_##tokens(const __grid_constant__ struct cuda_linear_wide p) \
    {                                                                                    \
        wide_tokens<packed_weights<__VA_ARGS__>, tokens>(p);                             \
    }
#define X(kind, ...)                 \
    KERNEL(kind, 32, 2, __VA_ARGS__) \
    KERNEL(kind, 64, 2, __VA_ARGS__) \
    KERNEL(kind, 128, 1, __VA_ARGS__)
LINEAR_KINDS(X)
#undef X

// Adds up what the parts of a split have left: a block per token and run of rows.
extern "C" __global__ void __launch_bounds__(256) linear_wide_add(const __grid_constant__ struct cuda_linear_wide q)
{
    const struct cuda_linear &p = q.linear;
    kernel_begin();
    int tokens = *p.rows, token = (int)blockIdx.y, column = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int all_rows = wide_rows(p);
    if (token >= tokens || column >= all_rows)
        return;
    float sum = 0;
    for (int i = 0; i < q.splits; i++)
        sum += q.partials[((size_t)i * tokens + token) * all_rows + column];
    int output = 0;
    while (column >= p.output[output].rows)
        column -= p.output[output++].rows;
    float bias = p.output[output].bias ? p.output[output].bias[column] : 0.0f;
    linear_store(p, p.output[output], token, column,
                 sum * (p.output[output].scale * (float)(1u << LINEAR_EXPONENT)) + bias);
}
