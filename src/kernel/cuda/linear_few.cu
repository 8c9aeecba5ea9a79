// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_few.cu: linear for one to eight tokens, at the speed of the memory that the weights come from.
//   (1) a tile is one or two groups of sixteen rows; a block has a run of tiles and streams through them. Its warps
//       share a tile's k; each has its own ring of records in shared memory, filled ahead of use, across tiles. The
//       last warp adds up what the others have summed: they never wait for it, unless it is two tiles behind
//   (2) weights are no other kernel's result, nor is the number of tokens: the rings are filled before the kernel waits
//       for the one before it
//   (3) tokens are the eight columns of a product, whether they are there or not: a token's bits do not depend on their
//       number. Warps' sums are added in order
//   (4) where a norm is absorbed, x times its weight is what is multiplied, and a token's factor is applied to the sums
#include "kernel/cuda/linear_few_x.cuh"

// ---- results ----

// Where gate and up are of different formats, the gate was computed before and is where the result will be.
DEVICE float few_gate(const cuda_linear_output &output, int token, int row)
{
    return bf16_to_f32(((const uint16_t *)output.y)[(size_t)token * (size_t)output.rows + (size_t)row]);
}

// A row's sum for a token, added up over the parts of k; `sums` is where the first part's is.
template <class Weights>
DEVICE float few_total(const struct cuda_linear_few &q, const struct few_shared &shared,
                       const cuda_linear_output &output, const float *sums, int token, int row)
{
    float total = 0;
#pragma unroll 4
    for (int part = 0; part < q.k_split; part++)
        total += sums[part * Weights::GROUPS * GROUP_SUMS];
    total *= output.scale * (float)(1u << Weights::EXPONENT);
    if (q.linear.norm_weight)
        total *= shared.factors[token];
    return output.bias ? total + output.bias[row] : total;
}

// What is to be done with a row's total for a token; `up` is that of the tile's other group, where it has both.
DEVICE void few_result(const struct cuda_linear &p, const struct few_tiles &tiles, const struct few_tile &tile,
                       int token, int row, float total, float up, float *gate)
{
    const cuda_linear_output &output = p.output[tile.output];
    if (tiles.pairs)
        linear_store(p, output, token, row, activate(p.act, total) * activated_factor(p.act, up));
    else if (tiles.halves == 2 && tile.output == 0)
        *gate = total;
    else if (tiles.halves == 2)
        linear_store(p, p.output[0], token, row, activate(p.act, *gate) * activated_factor(p.act, total));
    else if (p.act >= 0)
        linear_store(p, output, token, row,
                     activate(p.act, few_gate(output, token, row)) * activated_factor(p.act, total));
    else
        linear_store(p, output, token, row, total);
}

// The sums of one tile: lanes are rows of its groups, and, if there is but one, two tokens. Several tokens are added up
// before any is stored, so that none waits for another.
template <class Weights>
DEVICE void few_finish(const struct cuda_linear_few &q, const struct few_shared &shared, const struct few_tiles &tiles,
                       const struct few_tile &tile, const float *sums, float *gates, int tokens)
{
    enum { AT_ONCE = 4 };
    const struct cuda_linear &p = q.linear;
    const cuda_linear_output &output = p.output[tile.output];
    int groups = tiles.pairs ? 1 : Weights::GROUPS, step = 2 / groups, in_group = lane_index() % LINEAR_ROWS;
    int group = lane_index() / LINEAR_ROWS % groups, row = tile.group_of(group) * LINEAR_ROWS + in_group;
    if (row >= output.rows)
        return;
    for (int first = lane_index() / LINEAR_ROWS / groups; first < tokens; first += AT_ONCE * step) {
        float totals[AT_ONCE] = {}, ups[AT_ONCE] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int token = first + i * step, at = token * LINEAR_ROWS + in_group;
            if (token < tokens)
                totals[i] = few_total<Weights>(q, shared, output, sums + group * GROUP_SUMS + at, token, row);
            if (token < tokens && tiles.pairs)
                ups[i] = few_total<Weights>(q, shared, p.output[1], sums + GROUP_SUMS + at, token, row);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int token = first + i * step;
            if (token < tokens)
                few_result(p, tiles, tile, token, row, totals[i], ups[i], gates + token * LINEAR_ROWS + in_group);
        }
    }
}

DEVICE void few_arrive(int barrier) { asm volatile("bar.arrive %0, %1;" :: "r"(barrier), "r"(blockDim.x) : "memory"); }
DEVICE void few_wait(int barrier) { asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(blockDim.x) : "memory"); }

// What will be added to, on its way while its sums are made; of the first tile side by side, mostly the only one.
DEVICE void few_warm_residual(const struct cuda_linear &p, const struct few_tile &tile, int tokens)
{
    const cuda_linear_output &output = p.output[tile.output];
    int row = tile.group_of(0) * LINEAR_ROWS, token = lane_index();
    if (token < tokens && row < output.rows)
        asm volatile("prefetch.global.L1 [%0];" :: "l"((const float *)output.y + (size_t)token * output.rows + row));
}

template <class Weights>
DEVICE void few_finish_all(const struct cuda_linear_few &q, const struct few_shared &shared,
                           const struct few_tiles &tiles, int tokens)
{
    struct few_tile first(tiles);
    first.move(q.linear, tiles, tiles.first);
    for (int round = 0, rounds = tiles.rounds(0); round < rounds; round++) {
        if (q.linear.residual)
            few_warm_residual(q.linear, first, tokens);
        few_wait(SUMS_THERE + round % 2);
        if (round == 0)
            few_find_factors(q, shared, tokens);
        const float *sums = shared.sums + round % 2 * few_warps() * Weights::GROUPS * GROUP_SUMS;
        struct few_tile tile = first;
        for (int i = 0; i < tiles.side && round < tiles.rounds(i); i++, tile.move(q.linear, tiles, 1))
            few_finish<Weights>(q, shared, tiles, tile, sums + i * q.k_split * Weights::GROUPS * GROUP_SUMS,
                                shared.gates + i * GROUP_SUMS, tokens);
        first.next(q.linear, tiles);
        __syncwarp();
        if (round + 2 < rounds)
            few_arrive(SUMS_TAKEN + round % 2);
    }
}

// ---- the kernels ----

// A lane's part of a group's sums: rows l / 4 and l / 4 + 8, tokens 2 (l % 4) and the next.
template <int CHAINS> DEVICE void few_put(float *group, const float sums[CHAINS][4], int tokens)
{
    int row = lane_index() / 4, token = lane_index() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = CHAINS == 1 ? sums[0][i] : sums[0][i] + sums[CHAINS - 1][i];
        if (token + i % 2 < tokens)
            group[(token + i % 2) * LINEAR_ROWS + row + i / 2 * 8] = sum;
    }
}

// What a warp fetches, ahead of what it multiplies.
template <class Weights> struct few_fetch {
    static constexpr int RING_BYTES = linear_few_stages(Weights::BYTES) * Weights::BYTES;

    Weights weights;
    struct few_tile tile;
    int first, count; // the warp's records of a tile
    int rounds, left; // that are to come; records that are left of this one
    uint32_t ring;
    int stage;

    MEMBER void next(const struct cuda_linear &p, const struct few_tiles &tiles)
    {
        if (left == 0 && rounds > 0) {
            weights.begin(p, tile, first, lane_index());
            tile.next(p, tiles);
            left = count;
            rounds--;
        }
        if (left > 0) {
            weights.fetch(ring + stage, lane_index());
            left--;
        }
        copies_commit();
        stage = stage + Weights::BYTES < RING_BYTES ? stage + Weights::BYTES : 0;
    }
};

template <class Weights> DEVICE void few_tokens(const struct cuda_linear_few &q)
{
    constexpr int STAGES = linear_few_stages(Weights::BYTES);
    const struct cuda_linear &p = q.linear;
    launch_next();
    struct few_shared shared = few_memory<Weights>();
    struct few_tiles tiles = few_share<Weights>(q);
    int warp = warp_index(), part = warp % q.k_split, beside = warp / q.k_split;
    int tokens = *p.rows < FEW_TOKENS ? *p.rows : FEW_TOKENS;
    if (warp == few_warps()) {
        wait_for_previous();
        return few_finish_all<Weights>(q, shared, tiles, tokens);
    }

    int records = (p.in + Weights::K - 1) / Weights::K, first = records * part / q.k_split;
    int count = records * (part + 1) / q.k_split - first, own_rounds = count > 0 ? tiles.rounds(beside) : 0;
    struct few_fetch<Weights> fetch = { {}, tiles, first, count, own_rounds, 0, shared_address(shared.ring), 0 };
    fetch.tile.move(p, tiles, tiles.first + beside);
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++)
        fetch.next(p, tiles);
    few_warm_norm<Weights>(p, first, count);

    wait_for_previous();
    if (q.x_shared)
        few_take_x<Weights>(q, shared, first * (Weights::K / PIECE), (first + count) * (Weights::K / PIECE), tokens);
    struct x_row x = few_x_row<Weights>(q, shared, tokens);
    int stage = 0;
    for (int round = 0, rounds = tiles.rounds(0); round < rounds; round++) {
        float sums[Weights::GROUPS * Weights::CHAINS][4] = {};
        for (int i = 0; i < count && round < own_rounds; i++) {
            copies_wait<STAGES - 2>();
            __syncwarp(); // all lanes' copies are there, and all have read the stage before
            fetch.next(p, tiles);
            Weights::multiply_record(sums, shared.ring + stage, x, first + i, lane_index());
            stage = stage + Weights::BYTES < STAGES * Weights::BYTES ? stage + Weights::BYTES : 0;
        }
        if (round >= 2)
            few_wait(SUMS_TAKEN + round % 2);
        float *tile_sums = shared.sums + (round % 2 * few_warps() + warp) * Weights::GROUPS * GROUP_SUMS;
#pragma unroll
        for (int g = 0; g < Weights::GROUPS; g++)
            few_put<Weights::CHAINS>(tile_sums + g * GROUP_SUMS, &sums[g * Weights::CHAINS], tokens);
        __syncwarp();
        few_arrive(SUMS_THERE + round % 2);
    }
}

#define KERNEL(name, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__((LINEAR_FEW_WARPS_MAX + 1) * WARP, 1)      \
        linear_few_##name(const __grid_constant__ struct cuda_linear_few p)                 \
    {                                                                                       \
        few_tokens<__VA_ARGS__>(p);                                                         \
    }
#define X(kind, ...) KERNEL(kind, few_packed<__VA_ARGS__>)
LINEAR_KINDS(X)
#undef X
KERNEL(bf16, few_floats<false>)
KERNEL(f16, few_floats<true>)
