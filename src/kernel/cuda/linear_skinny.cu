// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_skinny.cu: skinny GEMM for decode, one to eight tokens, at the speed of the memory that the
// weights come from. Split-K within a block; warps are specialised: all but one multiply, the last adds up their sums.
//   (1) a tile is one or two groups of sixteen rows; a block has a run of tiles and streams through them. Its warps
//       share a tile's k; each has its own ring of records in shared memory, filled ahead of use, across tiles. The
//       last warp adds up what the others have summed: they never wait for it, unless it is two tiles behind
//   (2) weights are no other kernel's result, nor is the number of tokens: the rings are filled before the kernel waits
//       for the one before it
//   (3) tokens are the eight columns of a product, whether they are there or not, and sums of warps are added in one
//       order: a token's bits do not depend on how many others there are
//   (4) where a norm is fused, x times its weight is what is multiplied, and a token's factor is applied to the sums
//   (5) what a warp does once, it does as slowly as all of the block's warps together: what can be known before is a
//       parameter, and nothing is divided
#include "kernel/cuda/linear_skinny_x.cuh"

// ---- results ----

// Where gate and up are of different formats, the gate was computed before and is where the result will be.
DEVICE float skinny_gate(const cuda_linear_output &output, int token, int row)
{
    return bf16_to_f32(((const uint16_t *)output.y)[(size_t)token * (size_t)output.rows + (size_t)row]);
}

// A row's sum for a token, added up over the parts of k; `sums` is where the first part's is.
template <class Weights> DEVICE float skinny_sum(const struct cuda_linear_skinny &q, const float *sums)
{
    float chains[4] = {};
#pragma unroll
    for (int i = 0; i < LINEAR_SKINNY_WARPS_MAX; i++)
        chains[i % 4] += i >> q.split_shift ? 0 : sums[i * Weights::GROUPS * GROUP_SUMS];
    return (chains[0] + chains[1]) + (chains[2] + chains[3]);
}

// Epilogue: finishes a row's total for a token and stores it. `up` is the total of the tile's other group, where it has
// both; `before` is the residual that the total is added to.
DEVICE void skinny_result(const struct cuda_linear &p, const struct skinny_tiles &tiles, const struct skinny_tile &tile,
                          int token, int row, float total, float up, float before, float *gate)
{
    const cuda_linear_output &output = p.output[tile.output];
    if (p.residual)
        ((float *)output.y)[(size_t)token * (size_t)output.rows + (size_t)row] = before + total;
    else if (tiles.pairs)
        linear_store(p, output, token, row, activate(p.act, total) * activated_factor(p.act, up));
    else if (tiles.halves == 2 && tile.output == 0)
        *gate = total;
    else if (tiles.halves == 2)
        linear_store(p, p.output[0], token, row, activate(p.act, *gate) * activated_factor(p.act, total));
    else if (p.act >= 0)
        linear_store(p, output, token, row,
                     activate(p.act, skinny_gate(output, token, row)) * activated_factor(p.act, total));
    else
        linear_store(p, output, token, row, total);
}

// Epilogue of one tile's sums. Lanes are rows of its groups, and, if there is but one, two tokens. All values that do
// not depend on sums are loaded before these are there.
template <class Weights> struct skinny_finish {
    const struct cuda_linear_skinny &q;
    const struct skinny_tiles &tiles;
    const struct skinny_tile &tile;
    const cuda_linear_output &output, &up; // up: where the tile has both
    int in_group, group, row, first_token, step;
    float scale, up_scale, bias, up_bias, before; // before: what the first token's result is added to
    bool there;

    MEMBER skinny_finish(const struct cuda_linear_skinny &skinny, const struct skinny_tiles &all,
                         const struct skinny_tile &one, int tokens)
        : q(skinny), tiles(all), tile(one), output(skinny.linear.output[one.output]), up(skinny.linear.output[1])
    {
        constexpr float UNIT = 1u << Weights::EXPONENT;
        int groups = tiles.pairs ? 1 : Weights::GROUPS;
        in_group = lane_index() % LINEAR_ROWS;
        group = lane_index() / LINEAR_ROWS % groups;
        row = tile.group_of(group) * LINEAR_ROWS + in_group;
        first_token = lane_index() / LINEAR_ROWS / groups;
        step = 2 / groups;
        there = row < output.rows && first_token < tokens;
        scale = output.scale * UNIT;
        up_scale = up.scale * UNIT;
        bias = there && output.bias ? output.bias[row] : 0;
        up_bias = there && tiles.pairs && up.bias ? up.bias[row] : 0;
        before = there && q.linear.residual ? residual(first_token) : 0;
    }

    MEMBER float residual(int token) const
    {
        return ((const float *)output.y)[(size_t)token * (size_t)output.rows + (size_t)row];
    }

    // AT_ONCE tokens are added up before any is stored, so that none waits for another.
    template <int AT_ONCE> MEMBER void store(const float *sums, const float *factors, float *gates, int tokens) const
    {
        const struct cuda_linear &p = q.linear;
        sums += group * GROUP_SUMS + in_group;
#pragma unroll 1
        for (int first = first_token; first < tokens && there; first += AT_ONCE * step) {
            float totals[AT_ONCE] = {}, ups[AT_ONCE] = {}, added_to[AT_ONCE] = {};
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                int token = first + i * step;
                if (token >= tokens)
                    break;
                if (p.residual)
                    added_to[i] = token == first_token ? before : residual(token);
                float factor = p.norm_weight ? factors[token] : 1;
                totals[i] = skinny_sum<Weights>(q, sums + token * LINEAR_ROWS) * scale * factor + bias;
                if (tiles.pairs)
                    ups[i] = skinny_sum<Weights>(q, sums + GROUP_SUMS + token * LINEAR_ROWS) * up_scale * factor
                        + up_bias;
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                int token = first + i * step;
                if (token < tokens)
                    skinny_result(p, tiles, tile, token, row, totals[i], ups[i], added_to[i],
                                  gates + token * LINEAR_ROWS + in_group);
            }
        }
    }
};

// ---- barriers between the warps that multiply and the one that adds up ----

// A __syncthreads() follows before any warp waits.
DEVICE void skinny_barriers_init(const struct skinny_shared &shared)
{
    for (int i = 0; i < 2 && lane_index() == 0; i++) {
        barrier_init(shared.there + i * BARRIER_BYTES, skinny_warps() * WARP);
        barrier_init(shared.taken + i * BARRIER_BYTES, WARP);
    }
}

// All lanes arrive: racecheck does not know that one of them can do it for the others.
DEVICE void skinny_arrive(uint32_t barriers, int round) { barrier_arrive(barriers + round % 2 * BARRIER_BYTES); }

DEVICE void skinny_wait(uint32_t barriers, int round)
{
    barrier_wait(barriers + round % 2 * BARRIER_BYTES, round / 2 % 2);
}

template <class Weights>
DEVICE void skinny_finish_all(const struct cuda_linear_skinny &q, const struct skinny_shared &shared,
                              const struct skinny_tiles &tiles, int tokens)
{
    struct skinny_tile first(tiles);
    first.move(q.linear, tiles, tiles.first);
    for (int round = 0, rounds = tiles.rounds(0); round < rounds; round++) {
        struct skinny_tile tile = first;
        for (int i = 0; !(i >> tiles.side_shift) && round < tiles.rounds(i); i++, tile.move(q.linear, tiles, 1)) {
            struct skinny_finish<Weights> finish(q, tiles, tile, tokens);
            if (i == 0)
                skinny_wait(shared.there, round);
            if (i == 0 && round == 0)
                skinny_find_factors(q, shared, tokens);
            int at = (round % 2 * skinny_warps() + (i << q.split_shift)) * Weights::GROUPS * GROUP_SUMS;
            if (tokens <= 2)
                finish.template store<1>(shared.sums + at, shared.factors, shared.gates + i * GROUP_SUMS, tokens);
            else
                finish.template store<4>(shared.sums + at, shared.factors, shared.gates + i * GROUP_SUMS, tokens);
        }
        first.next(q.linear, tiles);
        skinny_arrive(shared.taken, round);
    }
}

// ---- the kernels ----

// Fetches the records of a warp, ahead of those that it multiplies.
template <class Weights> struct skinny_fetch {
    static constexpr int RING_BYTES = linear_skinny_stages(Weights::BYTES) * Weights::BYTES;

    Weights weights;
    struct skinny_tile tile;
    int first, count, all_rounds; // the warp's records of a tile, its rounds
    int rounds, left;             // that are to come; records that are left of this one
    uint32_t ring;                // where this lane's first chunk of a stage goes
    int stage;

    MEMBER void next(const struct cuda_linear &p, const struct skinny_tiles &tiles)
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

// The rounds of a warp, whose first records are on their way into its ring.
template <class Weights, bool SHARED>
DEVICE void skinny_multiply(const struct cuda_linear_skinny &q, const struct skinny_shared &shared,
                            const struct skinny_tiles &tiles, struct skinny_fetch<Weights> &fetch, int tokens)
{
    constexpr int STAGES = linear_skinny_stages(Weights::BYTES), GROUPS = Weights::GROUPS, CHAINS = Weights::CHAINS;
    struct x_row x = skinny_x_row<Weights>(q, shared, tokens);
    int lane = lane_index();
    int stage = 0, first = fetch.first, count = fetch.count, own_rounds = fetch.all_rounds;
    for (int round = 0, rounds = tiles.rounds(0); round < rounds; round++) {
        float sums[GROUPS * CHAINS][4] = {};
        for (int i = 0; i < count && round < own_rounds; i++) {
            copies_wait<STAGES - 2>();
            __syncwarp(); // all lanes' copies are there, and all have read the stage before
            fetch.next(q.linear, tiles);
            Weights::template multiply_record<SHARED>(sums, shared.ring + stage, x, first + i, lane);
            stage = stage + Weights::BYTES < STAGES * Weights::BYTES ? stage + Weights::BYTES : 0;
        }
        if (round >= 2)
            skinny_wait(shared.taken, round - 2);
        float *tile_sums = shared.sums + (round % 2 * skinny_warps() + warp_index()) * GROUPS * GROUP_SUMS;
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            skinny_put<CHAINS>(tile_sums + g * GROUP_SUMS, &sums[g * CHAINS], tokens);
        skinny_arrive(shared.there, round);
    }
}

// Fills the ring of a warp that multiplies.
template <class Weights>
DEVICE void skinny_fetch_begin(const struct cuda_linear_skinny &q, const struct skinny_shared &shared,
                               const struct skinny_tiles &tiles, struct skinny_fetch<Weights> *fetch)
{
    constexpr int STAGES = linear_skinny_stages(Weights::BYTES);
    const struct cuda_linear &p = q.linear;
    int beside = warp_index() >> q.split_shift, part = warp_index() - (beside << q.split_shift);
    int records = (p.in + Weights::K - 1) / Weights::K;
    fetch->first = records * part >> q.split_shift;
    fetch->count = (records * (part + 1) >> q.split_shift) - fetch->first;
    fetch->rounds = fetch->all_rounds = fetch->count > 0 ? tiles.rounds(beside) : 0;
    fetch->ring = shared_address(shared.ring) + Weights::place(lane_index());
    fetch->tile.move(p, tiles, tiles.first + beside);
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++)
        fetch->next(p, tiles);
    skinny_warm_norm<Weights>(p, fetch->first, fetch->count);
}

template <class Weights> DEVICE void skinny_tokens(const struct cuda_linear_skinny &q)
{
    launch_next();
    int rows = *q.linear.rows; // loaded early: it is needed when the rings have been filled
    struct skinny_shared shared = skinny_memory<Weights>();
    struct skinny_tiles tiles(q, Weights::GROUPS);
    struct skinny_fetch<Weights> fetch = {
        {}, tiles
    };
    bool adds_up = warp_index() == skinny_warps();
    if (adds_up)
        skinny_barriers_init(shared);
    else
        skinny_fetch_begin(q, shared, tiles, &fetch);
    __syncthreads();
    wait_for_previous();

    int tokens = min(rows, (int)SKINNY_TOKENS);
    if (adds_up)
        return skinny_finish_all<Weights>(q, shared, tiles, tokens);
    if (!q.x_shared)
        return skinny_multiply<Weights, false>(q, shared, tiles, fetch, tokens);
    int first = fetch.first * (Weights::K / CHUNK), count = fetch.count * (Weights::K / CHUNK);
    skinny_take_x<Weights>(q, shared, first, first + count, tokens);
    skinny_multiply<Weights, true>(q, shared, tiles, fetch, tokens);
}

#define KERNEL(name, ...)                                                                 \
    extern "C" __global__ void __launch_bounds__((LINEAR_SKINNY_WARPS_MAX + 1) * WARP, 1) \
        linear_skinny_##name(const __grid_constant__ struct cuda_linear_skinny p)         \
    {                                                                                     \
        skinny_tokens<__VA_ARGS__>(p);                                                    \
    }
#define X(kind, ...) KERNEL(kind, skinny_packed<__VA_ARGS__>)
LINEAR_KINDS(X)
#undef X
KERNEL(bf16, skinny_floats<false>)
KERNEL(f16, skinny_floats<true>)
