// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/experts.cu: grouped GEMM of a mixture of experts. A tile is a run of pairs of one expert, whose
// rows of x are gathered and whose results go where the pairs are; no other expert's weights are read.
//   (1) skinny: a block has sixteen rows and up to eight pairs; its warps share k, each with a ring of records in
//       shared memory, and their sums are added in order
//   (2) wide: a block has 128 rows, 32 per warp, and up to 64 pairs; x goes through shared memory, too
//   (3) any: float32 and rows that are not whole chunks of sixteen bytes are done by a warp per row
#include "kernel/cuda/linear_skinny_x.cuh"
#include "kernel/cuda/experts.h"
#include "kernel/cuda/weight.cuh"

using cuda_experts_output = cuda_experts::cuda_experts_output;
enum { RECORD_CHUNKS = LINEAR_RECORD / CHUNK };

// ---- weights ----

// Chunks of a row that one access of a warp wants lie in different banks.
DEVICE int chunk_swizzle(int row, int chunk) { return (chunk >> 3 & 1) ^ (row & 1) << 1; }

// A group of sixteen rows of an expert's matrix, record by record: packed ones lie as they are wanted.
template <int BITS, int BLOCK, int FLOATS, int SMALL, int MIN>
struct experts_packed : packed_weights<BITS, BLOCK, FLOATS, SMALL, MIN> {
    using packed = packed_weights<BITS, BLOCK, FLOATS, SMALL, MIN>;
    static constexpr bool HALF = false;
    static constexpr int EXPONENT = LINEAR_EXPONENT;

    static MEMBER void fetch(uint32_t to, const uint8_t *weight, int, int in, int group, int record)
    {
        size_t records = (size_t)((in + LINEAR_RECORD - 1) / LINEAR_RECORD);
        const uint8_t *from = weight + ((size_t)group * records + (size_t)record) * packed::BYTES;
#pragma unroll
        for (int i = 0; i < packed::BYTES / 16; i += WARP)
            if (i + lane_index() < packed::BYTES / 16)
                copy_16(to + (i + lane_index()) * 16, from + (i + lane_index()) * 16);
    }
};

// Sixteen bits a value, row by row, with zeros past the matrix: a lane has the same values of a record as packed ones.
template <bool IS_HALF> struct experts_floats {
    static constexpr bool HALF = IS_HALF;
    static constexpr int EXPONENT = 0, BYTES = EXPERTS_FLOAT_BYTES;

    uint4 upper, lower;

    static MEMBER void fetch(uint32_t to, const uint8_t *weight, int rows, int in, int group, int record)
    {
#pragma unroll
        for (int i = 0; i < BYTES / 16; i += WARP) {
            int row = (i + lane_index()) / RECORD_CHUNKS, chunk = (i + lane_index()) % RECORD_CHUNKS;
            int at = group * LINEAR_ROWS + row, column = record * RECORD_CHUNKS + chunk;
            bool there = at < rows && column * CHUNK < in;
            copy_16(to + (row * RECORD_CHUNKS + (chunk ^ chunk_swizzle(row, chunk))) * 16,
                    weight + (there ? ((size_t)at * (size_t)(in / CHUNK) + (size_t)column) * 16 : 0), there ? 16 : 0);
        }
    }

    MEMBER void load_scales(const uint8_t *, int) {}

    MEMBER void load_chunk(const uint8_t *record, int lane, int i)
    {
        int row = lane / 4, chunk = (lane % 4 * 4 + i) ^ chunk_swizzle(row, lane % 4 * 4);
        upper = ((const uint4 *)record)[row * RECORD_CHUNKS + chunk];
        lower = ((const uint4 *)record)[(row + 8) * RECORD_CHUNKS + chunk];
    }

    MEMBER void operand(int j, uint32_t a[4]) const
    {
        a[0] = j % 2 ? upper.z : upper.x, a[1] = j % 2 ? lower.z : lower.x;
        a[2] = j % 2 ? upper.w : upper.y, a[3] = j % 2 ? lower.w : lower.y;
    }
};

// ---- tiles ----

// Pairs [first, first + count) of an expert, in the order of all; no pairs: there is no such tile.
struct experts_tile {
    int expert, first, count;
};

// Tile `index` of those of PAIRS pairs, found by every warp for itself.
template <int PAIRS> DEVICE struct experts_tile find_tile(const struct cuda_routes &routes, int index)
{
    int before = 0;
    for (int base = 0; base < routes.experts; base += WARP) {
        int expert = base + lane_index(), first = 0, count = 0;
        if (expert < routes.experts) {
            first = routes.first[expert];
            count = routes.first[expert + 1] - first;
        }
        int tiles = (count + PAIRS - 1) / PAIRS, end = tiles;
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(WARP_ALL, end, step);
            end += lane_index() >= step ? other : 0;
        }
        uint32_t hits = __ballot_sync(WARP_ALL, before + end > index);
        if (hits) {
            int lane = __ffs((int)hits) - 1, done = index - before - __shfl_sync(WARP_ALL, end - tiles, lane);
            first = __shfl_sync(WARP_ALL, first, lane) + done * PAIRS;
            count = __shfl_sync(WARP_ALL, count, lane) - done * PAIRS;
            return { base + lane, first, count < PAIRS ? count : PAIRS };
        }
        before += __shfl_sync(WARP_ALL, end, WARP - 1);
    }
    return { 0, 0, 0 };
}

// Which rows a block has: the matrix, and the first of its tiles of `rows` rows.
DEVICE const cuda_experts_output &take_rows(const struct cuda_experts &p, int rows, int *first)
{
    int tile = (int)blockIdx.x, output = 0;
    if (p.outputs > 1 && tile >= (p.output[0].rows + rows - 1) / rows) {
        tile -= (p.output[0].rows + rows - 1) / rows;
        output = 1;
    }
    *first = tile * rows;
    return p.output[output];
}

DEVICE const uint16_t *x_of(const struct cuda_experts &p, int pair)
{
    return p.x + (size_t)(p.x_per_slot ? pair : pair / p.routes.top_k) * (size_t)p.in;
}

DEVICE void store(const cuda_experts_output &output, int expert, int pair, int row, float value)
{
    float scale = output.scale * (output.scales ? output.scales[expert] : 1.0f);
    float bias = output.bias ? output.bias[(size_t)expert * (size_t)output.rows + (size_t)row] : 0.0f;
    output.y[(size_t)pair * (size_t)output.rows + (size_t)row] = bf16_round(value * scale + bias);
}

// ---- skinny: decode ----

// Eight values of one pair's x, or zeros.
template <bool HALF> DEVICE uint4 skinny_x(const uint16_t *x, int chunk, int in)
{
    uint4 values = make_uint4(0, 0, 0, 0);
    if (x && chunk * CHUNK < in)
        values = __ldcg((const uint4 *)x + chunk);
    return HALF ? f16_chunk(values) : values;
}

template <class Weights>
DEVICE void skinny_multiply(float sums[4], const uint8_t *record, const uint16_t *x, int index, int in)
{
    Weights weights;
    uint4 b[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        b[i] = skinny_x<Weights::HALF>(x, index * RECORD_CHUNKS + lane_index() % 4 * 4 + i, in);
    weights.load_scales(record, lane_index());
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a[4];
        weights.load_chunk(record, lane_index(), i);
        weights.operand(2 * i, a);
        multiply<Weights::HALF>(sums, a, b[i].x, b[i].y);
        weights.operand(2 * i + 1, a);
        multiply<Weights::HALF>(sums, a, b[i].z, b[i].w);
    }
}

template <class Weights> DEVICE void skinny_pairs(const struct cuda_experts &p)
{
    constexpr int STAGES = experts_skinny_stages(Weights::BYTES), WARP_BYTES = STAGES * Weights::BYTES;
    extern __shared__ __align__(16) uint8_t memory[];
    float *parts = (float *)(memory + EXPERTS_SKINNY_WARPS * WARP_BYTES);
    kernel_begin();
    struct experts_tile tile = find_tile<EXPERTS_SKINNY_PAIRS>(p.routes, (int)blockIdx.y);
    if (!tile.count)
        return;
    int first_row, records = (p.in + LINEAR_RECORD - 1) / LINEAR_RECORD;
    const cuda_experts_output &output = take_rows(p, LINEAR_ROWS, &first_row);
    const uint8_t *weight = output.weight + (size_t)tile.expert * output.bytes;
    uint8_t *ring = memory + warp_index() * WARP_BYTES;
    int first = records * warp_index() / EXPERTS_SKINNY_WARPS,
        end = records * (warp_index() + 1) / EXPERTS_SKINNY_WARPS;
    auto fetch = [&](int i) {
        if (first + i < end)
            Weights::fetch(shared_address(ring + i % STAGES * Weights::BYTES), weight, output.rows, p.in,
                           first_row / LINEAR_ROWS, first + i);
        copies_commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        fetch(i);
    int token = lane_index() / 4;
    const uint16_t *x = token < tile.count ? x_of(p, p.routes.pair[tile.first + token]) : nullptr;
    float sums[4] = {};
    for (int i = 0; first + i < end; i++) {
        copies_wait<STAGES - 2>();
        __syncwarp(); // all lanes' copies are there, and all have read the stage before
        fetch(i + STAGES - 1);
        skinny_multiply<Weights>(sums, ring + i % STAGES * Weights::BYTES, x, first + i, p.in);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        parts[warp_index() * GROUP_SUMS + (lane_index() % 4 * 2 + i % 2) * LINEAR_ROWS + lane_index() / 4 + i / 2 * 8] =
            sums[i];
    __syncthreads();
    int column = (int)threadIdx.x / LINEAR_ROWS, row = first_row + (int)threadIdx.x % LINEAR_ROWS;
    if (column >= tile.count || row >= output.rows)
        return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < EXPERTS_SKINNY_WARPS; i++)
        sum += parts[i * GROUP_SUMS + (int)threadIdx.x];
    store(output, tile.expert, p.routes.pair[tile.first + column], row, sum * (float)(1u << Weights::EXPONENT));
}

// ---- wide: prefill ----

enum { GROUPS = EXPERTS_WIDE_GROUPS, PAIRS = EXPERTS_WIDE_PAIRS };

// x of a record: a row of sixteen chunks per pair.
DEVICE void wide_copy_x(uint32_t to, const struct cuda_experts &p, const int *pairs, int count, int record)
{
    for (int i = (int)threadIdx.x; i < PAIRS * RECORD_CHUNKS; i += (int)blockDim.x) {
        int row = i / RECORD_CHUNKS, chunk = i % RECORD_CHUNKS, k = record * LINEAR_RECORD + chunk * CHUNK;
        bool there = row < count && k < p.in;
        copy_16(to + (row * RECORD_CHUNKS + (chunk ^ chunk_swizzle(row, chunk))) * 16,
                there ? x_of(p, pairs[row]) + k : p.x, there ? 16 : 0);
    }
}

// Products that follow each other have different sums; tokens that are not there cost nothing.
template <class Weights>
DEVICE void wide_multiply(float sums[GROUPS][PAIRS / 8][4], const uint8_t *weights, const uint8_t *x, int count)
{
    int lane = lane_index(), token = lane / 4, first = lane % 4 * 4;
    Weights held[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        held[g].load_scales(weights + g * Weights::BYTES, lane);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a[2][GROUPS][4];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            held[g].load_chunk(weights + g * Weights::BYTES, lane, i);
            held[g].operand(2 * i, a[0][g]);
            held[g].operand(2 * i + 1, a[1][g]);
        }
        const uint4 *chunks = (const uint4 *)x + token * RECORD_CHUNKS + ((first + i) ^ chunk_swizzle(token, first));
#pragma unroll
        for (int n = 0; n < PAIRS / 8; n++) {
            if (n * 8 >= count)
                break;
            uint4 b = chunks[n * 8 * RECORD_CHUNKS];
            b = Weights::HALF ? f16_chunk(b) : b;
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                multiply<Weights::HALF>(sums[g][n], a[0][g], b.x, b.y);
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                multiply<Weights::HALF>(sums[g][n], a[1][g], b.z, b.w);
        }
    }
}

template <class Weights> DEVICE void wide_pairs(const struct cuda_experts &p)
{
    constexpr int STAGES = experts_wide_stages(Weights::BYTES), STAGE_BYTES = experts_wide_stage_bytes(Weights::BYTES);
    extern __shared__ __align__(16) uint8_t memory[];
    __shared__ int pairs[PAIRS];
    kernel_begin();
    struct experts_tile tile = find_tile<PAIRS>(p.routes, (int)blockIdx.y);
    if (!tile.count)
        return;
    int first_row, records = (p.in + LINEAR_RECORD - 1) / LINEAR_RECORD;
    const cuda_experts_output &output = take_rows(p, EXPERTS_WIDE_WARPS * GROUPS * LINEAR_ROWS, &first_row);
    const uint8_t *weight = output.weight + (size_t)tile.expert * output.bytes;
    if ((int)threadIdx.x < tile.count)
        pairs[threadIdx.x] = p.routes.pair[tile.first + (int)threadIdx.x];
    __syncthreads();
    first_row += warp_index() * GROUPS * LINEAR_ROWS;
    auto stage = [&](int i) { return memory + i % STAGES * STAGE_BYTES; };
    auto weights_in = [&](int i) {
        return stage(i) + PAIRS * RECORD_CHUNKS * 16 + warp_index() * GROUPS * Weights::BYTES;
    };
    auto fetch = [&](int i) {
        for (int g = 0; g < GROUPS && i < records; g++)
            if (first_row + g * LINEAR_ROWS < output.rows)
                Weights::fetch(shared_address(weights_in(i) + g * Weights::BYTES), weight, output.rows, p.in,
                               first_row / LINEAR_ROWS + g, i);
        if (i < records)
            wide_copy_x(shared_address(stage(i)), p, pairs, tile.count, i);
        copies_commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        fetch(i);
    float sums[GROUPS][PAIRS / 8][4] = {};
    for (int i = 0; i < records; i++) {
        copies_wait<STAGES - 2>();
        __syncthreads(); // all warps' copies are there, and all have read the stage before
        fetch(i + STAGES - 1);
        wide_multiply<Weights>(sums, weights_in(i), stage(i), tile.count);
    }
    copies_wait<0>();
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int n = 0; n < PAIRS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int column = n * 8 + lane_index() % 4 * 2 + i % 2;
                int row = first_row + g * LINEAR_ROWS + lane_index() / 4 + i / 2 * 8;
                if (column < tile.count && row < output.rows)
                    store(output, tile.expert, pairs[column], row, sums[g][n][i] * (float)(1u << Weights::EXPONENT));
            }
}

#define KERNELS(name, ...)                                                   \
    extern "C" __global__ void __launch_bounds__(EXPERTS_SKINNY_WARPS *WARP) \
        experts_skinny_##name(const __grid_constant__ struct cuda_experts p) \
    {                                                                        \
        skinny_pairs<__VA_ARGS__>(p);                                        \
    }                                                                        \
    extern "C" __global__ void __launch_bounds__(EXPERTS_WIDE_WARPS *WARP)   \
        experts_wide_##name(const __grid_constant__ struct cuda_experts p)   \
    {                                                                        \
        wide_pairs<__VA_ARGS__>(p);                                          \
    }
#define X(kind, ...) KERNELS(kind, experts_packed<__VA_ARGS__>)
LINEAR_KINDS(X)
#undef X
KERNELS(bf16, experts_floats<false>)
KERNELS(f16, experts_floats<true>)

// ---- any ----

// Pairs are y of the grid, and those that are so many further on.
template <class Block> DEVICE void any_pairs(const struct cuda_experts &p)
{
    kernel_begin();
    int row, pairs = *p.rows * p.routes.top_k;
    const cuda_experts_output &output = take_rows(p, block_warps(), &row);
    row += warp_index();
    for (int pair = (int)blockIdx.y; pair < pairs && row < output.rows; pair += (int)gridDim.y) {
        int expert = p.routes.expert[pair];
        const Block *weights = (const Block *)(output.weight + (size_t)expert * output.bytes) + (size_t)row * p.in;
        const uint16_t *x = x_of(p, pair);
        float sum = 0;
        for (int i = lane_index(); i < p.in; i += WARP)
            sum += weight_value(weights + i, 0) * bf16_to_f32(x[i]);
        sum = lanes_sum(sum);
        if (lane_index() == 0)
            store(output, expert, pair, row, sum);
    }
}

#define ANY(name, Block)                                                  \
    extern "C" __global__ void __launch_bounds__(256)                     \
        experts_any_##name(const __grid_constant__ struct cuda_experts p) \
    {                                                                     \
        any_pairs<struct Block>(p);                                       \
    }
ANY(f32, F32)
ANY(f16, F16)
ANY(bf16, BF16)
