// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_skinny_weights.cuh: what a warp of linear_skinny.cu streams: tiles of rows, and in them records
// along k, which it fetches into its ring and multiplies with x.
#ifndef KERNEL_CUDA_LINEAR_SKINNY_WEIGHTS_CUH
#define KERNEL_CUDA_LINEAR_SKINNY_WEIGHTS_CUH

#include "kernel/cuda/linear_decode.cuh"

enum {
    SKINNY_TOKENS = LINEAR_SKINNY_TOKENS,
    GROUP_SUMS = LINEAR_ROWS * SKINNY_TOKENS,
    CHUNK = 8 /* values of 16 bytes */
};

// ---- tiles ----

DEVICE int group_count(const cuda_linear_output &output) { return (output.rows + LINEAR_ROWS - 1) / LINEAR_ROWS; }

// Which tiles a block has: a run of them, some at a time. Where gate and up are multiplied for an activation, a tile is
// the same rows of both, as its two groups, or, if it has but one, in two rounds.
struct skinny_tiles {
    int first, all, side_shift;
    int step;   // groups of a matrix in a tile: one or two
    int halves; // rounds for a tile
    bool pairs; // a tile is two groups, of gate and up

    MEMBER skinny_tiles(const struct cuda_linear_skinny &q, int groups)
    {
        bool both = q.linear.act >= 0 && q.linear.outputs == 2;
        int block = (int)blockIdx.x;
        first = block * q.tiles_each + min(block, q.tiles_rest);
        all = q.tiles_each + (block < q.tiles_rest);
        side_shift = q.side_shift;
        pairs = both && groups == 2;
        halves = both && groups == 1 ? 2 : 1;
        step = both ? 1 : groups;
    }

    // In which `beside` has a tile; for 0, all of the block's.
    MEMBER int rounds(int beside) const { return ((all - beside + (1 << side_shift) - 1) >> side_shift) * halves; }
    MEMBER int count(const cuda_linear_output &output) const { return (group_count(output) + step - 1) >> (step - 1); }
};

// Returns how many warps of a block multiply.
DEVICE int skinny_warps() { return block_warps() - 1; }

// One tile: its matrix, and its place among that one's.
struct skinny_tile {
    int output, index, step;
    bool pairs;

    MEMBER skinny_tile(const struct skinny_tiles &tiles) : output(0), index(0), step(tiles.step), pairs(tiles.pairs) {}

    MEMBER int output_of(int group) const { return pairs ? group : output; }
    MEMBER int group_of(int group) const { return index * step + (pairs ? 0 : group); }

    // On by so many.
    MEMBER void move(const struct cuda_linear &p, const struct skinny_tiles &tiles, int count)
    {
        index += count;
        while (!pairs && tiles.halves == 1 && output + 1 < p.outputs && index >= tiles.count(p.output[output]))
            index -= tiles.count(p.output[output++]);
    }

    // To that of the next round.
    MEMBER void next(const struct cuda_linear &p, const struct skinny_tiles &tiles)
    {
        if (tiles.halves == 2)
            output ^= 1;
        if (tiles.halves == 1 || output == 0)
            move(p, tiles, 1 << tiles.side_shift);
    }
};

// ---- x ----

// One token's row as a lane reads it, in chunks of eight values. Where there is no such token it is another's, and what
// is made of it is not stored.
struct x_row {
    enum { CHUNKS_MAX = 4 };

    uint32_t shared[CHUNKS_MAX]; // where the lane's chunks of the first record are in shared memory
    const uint4 *given;          // or, if they are not SHARED, the row
    int count;

    // Past the end of what is given, where weights are zero, its beginning is read.
    template <class Weights, bool SHARED> MEMBER void load(int record, uint4 out[Weights::X_CHUNKS]) const
    {
#pragma unroll
        for (int i = 0; i < Weights::X_CHUNKS; i++) {
            if constexpr (SHARED) {
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(out[i].x), "=r"(out[i].y), "=r"(out[i].z), "=r"(out[i].w)
                             : "r"(shared[i] + record * Weights::K * 2));
            } else {
                int chunk = record * (Weights::K / CHUNK) + Weights::lane_chunk(lane_index(), i);
                out[i] = given[chunk < count ? chunk : 0];
            }
        }
    }
};

// ---- weights ----

// A lane's part of a group's sums: rows l / 4 and l / 4 + 8, tokens 2 (l % 4) and the next.
template <int CHAINS> DEVICE void skinny_put(float *group, const float sums[CHAINS][4], int tokens)
{
    int row = lane_index() / 4, token = lane_index() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = CHAINS == 1 ? sums[0][i] : sums[0][i] + sums[CHAINS - 1][i];
        if (token + i % 2 < tokens)
            group[(token + i % 2) * LINEAR_ROWS + row + i / 2 * 8] = sum;
    }
}

// The records of a tile that a warp fetches, one after the other, and what is made of them. Packed weights come in
// pairs of groups, for which x is loaded once: neighbours, or the same rows of gate and up. Sums of a group
// are so many CHAINS, added in the end: products that follow each other need not wait for each other.
template <int BITS, int BLOCK, int FLOATS, int SMALL, int MIN> struct skinny_packed {
    using packed = packed_weights<BITS, BLOCK, FLOATS, SMALL, MIN>;
    static constexpr bool HALF = false;
    static constexpr int EXPONENT = LINEAR_EXPONENT, K = packed::K, GROUPS = 2, CHAINS = 1, X_CHUNKS = 4;
    static constexpr int BYTES = GROUPS * packed::BYTES;

    // Chunks of a record that whole warps copy, and the rest, which is copied for both groups at once.
    static constexpr int WHOLE = packed::BYTES / 16 / WARP * WARP, REST = packed::BYTES / 16 - WHOLE;
    static_assert(GROUPS == 2 && 2 * REST <= WARP, "one lane, one chunk");

    const uint8_t *from[GROUPS], *rest; // this lane's parts of the record before the next

    MEMBER void begin(const struct cuda_linear &p, const struct skinny_tile &tile, int record, int lane)
    {
        size_t records = (size_t)((p.in + K - 1) / K);
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            const cuda_linear_output &output = p.output[tile.output_of(g)];
            int group = tile.group_of(g);
            from[g] = output.weight + ((size_t)group * records + (size_t)record - 1) * packed::BYTES + lane * 16;
            if (group * LINEAR_ROWS >= output.rows) // there is none: the first comes twice
                from[g] = from[0];
        }
        rest = (lane < REST ? from[0] : from[1] - REST * 16) + WHOLE * 16;
    }

    // Where a lane's first chunk lies in a record.
    static MEMBER uint32_t place(int lane) { return lane * 16; }

    // To where the lane's first chunk goes. Pointers move first: afterwards they would wait for copies to read them.
    MEMBER void fetch(uint32_t to, int lane)
    {
        rest += packed::BYTES;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            from[g] += packed::BYTES;
#pragma unroll
            for (int i = 0; i < WHOLE; i += WARP)
                copy_16_once(to + g * packed::BYTES + i * 16, from[g] + i * 16);
        }
        if (lane < 2 * REST)
            copy_16_once(to + WHOLE * 16 + (lane < REST ? 0 : packed::BYTES - REST * 16), rest);
    }

    // Chunks of a record that one access of the warp wants lie in different banks.
    static MEMBER int swizzle(int token, int chunk) { return (chunk >> 3 & 1) ^ (token & 1) << 1; }
    static MEMBER int lane_chunk(int lane, int i) { return lane % 4 * 4 + i; }

    template <bool SHARED>
    static MEMBER void multiply_record(float sums[GROUPS * CHAINS][4], const uint8_t *record, const struct x_row &x,
                                       int index, int lane)
    {
        packed weights[GROUPS];
        uint4 b[X_CHUNKS];
        x.load<skinny_packed, SHARED>(index, b);
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            weights[g].load_scales(record + g * packed::BYTES, lane);
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                weights[g].load_chunk(record + g * packed::BYTES, lane, i);
#pragma unroll
            for (int n = 0; n < 2 * GROUPS; n++) {
                uint32_t a[4];
                weights[n % GROUPS].operand(2 * i + n / GROUPS, a);
                multiply<HALF>(sums[n % GROUPS], a, n < GROUPS ? b[i].x : b[i].z, n < GROUPS ? b[i].y : b[i].w);
            }
        }
    }
};

// Sixteen bits a value, row by row: a record is 128 bytes of each of sixteen rows. in is a multiple of eight.
template <bool IS_HALF> struct skinny_floats {
    static constexpr bool HALF = IS_HALF;
    static constexpr int EXPONENT = 0, K = 64, GROUPS = 1, CHAINS = 2, X_CHUNKS = 2;
    static constexpr int BYTES = LINEAR_ROWS * K * 2, ROW_CHUNKS = K / CHUNK;
    static constexpr int COPY_ROWS = WARP / ROW_CHUNKS; // that the warp's lanes reach at a time

    const uint8_t *from;
    size_t step;       // from a row to that which the lane fetches next
    int rows, columns; // that are left, from the lane's on

    MEMBER void begin(const struct cuda_linear &p, const struct skinny_tile &tile, int record, int lane)
    {
        const cuda_linear_output &output = p.output[tile.output_of(0)];
        int row = tile.group_of(0) * LINEAR_ROWS + lane / ROW_CHUNKS, column = record * ROW_CHUNKS + lane % ROW_CHUNKS;
        from = output.weight + ((size_t)row * (size_t)(p.in / CHUNK) + (size_t)column) * 16;
        step = (size_t)COPY_ROWS * (size_t)p.in * 2;
        rows = output.rows - row;
        columns = p.in / CHUNK - column;
    }

    static MEMBER uint32_t place(int lane)
    {
        int row = lane / ROW_CHUNKS;
        return (uint32_t)(row * ROW_CHUNKS + (lane % ROW_CHUNKS ^ swizzle(row, 0))) * 16;
    }

    MEMBER void fetch(uint32_t to, int)
    {
#pragma unroll
        for (int i = 0; i < LINEAR_ROWS / COPY_ROWS; i++) {
            bool there = i * COPY_ROWS < rows && columns > 0;
            copy_16_once(to + i * COPY_ROWS * ROW_CHUNKS * 16, there ? from + i * step : from - 16, there ? 16 : 0);
        }
        from += ROW_CHUNKS * 16;
        columns -= ROW_CHUNKS;
    }

    static MEMBER int swizzle(int row, int) { return (row & 1) << 2; }
    static MEMBER int lane_swizzle(int lane) { return swizzle(lane / 4, 0); }
    static MEMBER int lane_chunk(int lane, int i) { return lane % 4 + 4 * i; }

    template <bool SHARED>
    static MEMBER void multiply_record(float sums[GROUPS * CHAINS][4], const uint8_t *record, const struct x_row &x,
                                       int index, int lane)
    {
        const uint4 *upper = (const uint4 *)record + lane / 4 * ROW_CHUNKS, *lower = upper + 8 * ROW_CHUNKS;
        uint4 b[X_CHUNKS];
        x.load<skinny_floats, SHARED>(index, b);
#pragma unroll
        for (int i = 0; i < X_CHUNKS; i++) {
            int column = i * 4 + lane % 4;
            uint4 first = upper[column ^ lane_swizzle(lane)], second = lower[column ^ lane_swizzle(lane)];
            const uint32_t a[4] = { first.x, second.x, first.y, second.y };
            const uint32_t c[4] = { first.z, second.z, first.w, second.w };
            multiply<HALF>(sums[0], a, b[i].x, b[i].y);
            multiply<HALF>(sums[1], c, b[i].z, b[i].w);
        }
    }
};

#endif
