// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/ssm_scan.cu: Mamba 2: the short causal convolution and the selective scan, recurrent form.
#include "kernel/cuda/ssm_scan.h"
#include "kernel/cuda/state.cuh"

// ---- conv: block (channels, sequence and tile of tokens) ----

// A pair of channels; the last one of an odd row has no second.
struct pair {
    float low, high;
};

DEVICE struct pair conv_bf16(const uint16_t *x, bool even, bool both)
{
    if (even) {
        uint32_t packed = *(const uint32_t *)x;
        return { bf16_low(packed), bf16_high(packed) };
    }
    return { bf16_to_f32(x[0]), both ? bf16_to_f32(x[1]) : 0.0f };
}

DEVICE struct pair conv_f32(const float *x, bool both) { return { x[0], both ? x[1] : 0.0f }; }

// The input at a row of the step, or, for negative rows, of earlier tokens.
DEVICE struct pair conv_input(const struct cuda_conv &p, const uint16_t *x, const float *before, int row, bool both)
{
    if (row >= 0)
        return conv_bf16(x + (size_t)row * (size_t)p.channels, p.channels % 2 == 0, both);
    return before ? conv_f32(before + (p.inputs + row) * p.channels, both) : pair{ 0.0f, 0.0f };
}

DEVICE float silu(float x) { return __fdividef(x, 1 + __expf(-x)); }

DEVICE void conv_store(const struct cuda_conv &p, uint16_t *out, struct pair sum, bool both)
{
    if (p.channels % 2 == 0) {
        *(uint32_t *)out = bf16_pair(silu(sum.low), silu(sum.high));
        return;
    }
    out[0] = bf16_round(silu(sum.low));
    if (both)
        out[1] = bf16_round(silu(sum.high));
}

// The first tile of a sequence reads the state and then writes the new one. Where inputs move within one state, each is
// read before it is overwritten.
DEVICE void conv_store_state(const struct cuda_conv &p, const uint16_t *x, const float *before, int count, bool both,
                             float *after)
{
    for (int i = 0; i < p.inputs; i++) {
        struct pair input = conv_input(p, x, before, count - p.inputs + i, both);
        after[i * p.channels] = input.low;
        if (both)
            after[i * p.channels + 1] = input.high;
    }
}

// WIDTH: the widest convolution kernel, at most the tokens of a tile, so that only the first tile reads the state. All
// loads of a tile are issued before the first sum.
template <int WIDTH, int TOKENS> DEVICE void conv_tile(const struct cuda_conv &p)
{
    kernel_begin();
    int sequence = (int)blockIdx.y / p.tiles, first_row = (int)blockIdx.y % p.tiles * TOKENS;
    int channel = ((int)blockIdx.x * CONV_THREADS + (int)threadIdx.x) * CONV_CHANNELS;
    if (sequence >= p.batch.counts[CUDA_SEQUENCES] || channel >= p.channels)
        return;
    int first = p.batch.first[sequence], count = p.batch.count[sequence], position = p.batch.positions[first];
    bool both = channel + 1 < p.channels, begins = first_row == 0;
    const float *before = begins && position ? state_at(p.batch, p.state, sequence, position - 1) + channel : NULL;
    const uint16_t *x = p.x + (size_t)first * (size_t)p.channels + channel;
    uint16_t *out = p.out + (size_t)first * (size_t)p.channels + channel;
    struct pair weights[WIDTH], inputs[TOKENS + WIDTH - 1], bias = { 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < TOKENS + WIDTH - 1; i++)
        if (i < TOKENS + p.inputs && first_row - p.inputs + i < count)
            inputs[i] = conv_input(p, x, before, first_row - p.inputs + i, both);
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
        if (i <= p.inputs)
            weights[i] = conv_f32(p.kernel + i * p.channels + channel, both);
    bias = p.bias ? conv_f32(p.bias + channel, both) : bias;
#pragma unroll
    for (int row = 0; row < TOKENS; row++) {
        struct pair sum = bias;
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            if (i <= p.inputs) {
                sum.low += weights[i].low * inputs[row + i].low;
                sum.high += weights[i].high * inputs[row + i].high;
            }
        if (first_row + row < count)
            conv_store(p, out + (size_t)(first_row + row) * (size_t)p.channels, sum, both);
    }
    if (begins)
        conv_store_state(p, x, before, count, both, state_at(p.batch, p.state, sequence, position) + channel);
}

extern "C" __global__ void __launch_bounds__(CONV_THREADS) conv_4(const __grid_constant__ struct cuda_conv p)
{
    conv_tile<4, CONV_4_TOKENS>(p);
}

extern "C" __global__ void __launch_bounds__(CONV_THREADS) conv_16(const __grid_constant__ struct cuda_conv p)
{
    conv_tile<CONV_KERNEL_MAX, CONV_16_TOKENS>(p);
}

// ---- scan: block (head and columns, sequence) ----

#define SOFTPLUS_LINEAR 20.0f // from here on softplus(x) is x

// Some tokens of a sequence in shared memory, for all warps of a block. RUNS: of keys.
template <int RUNS, int TOKENS> struct scan_tile {
    float4 b[TOKENS][RUNS], c[TOKENS][RUNS];
    float x[TOKENS][SCAN_COLUMNS], dt[TOKENS], decay[TOKENS];
};

// A thread's part of a tile in registers, loaded while the tile before it is computed.
template <int RUNS, int TOKENS> struct scan_raw {
    enum {
        RUNS_EACH = (RUNS * TOKENS + SCAN_THREADS - 1) / SCAN_THREADS,
        VALUES_EACH = (SCAN_COLUMNS * TOKENS + SCAN_THREADS - 1) / SCAN_THREADS,
    };
    float4 b[RUNS_EACH], c[RUNS_EACH];
    float x[VALUES_EACH], dt;
};

// The work of a block: the rows of its sequence, its head and the first of its columns.
struct scan_place {
    int first, count, position, head, column;
};

template <int RUNS, int TOKENS>
DEVICE void scan_fetch(const struct cuda_ssm_scan &p, const struct scan_place &at, int token,
                       struct scan_raw<RUNS, TOKENS> *out)
{
    int group = at.head / (p.heads / p.groups), inner = p.heads * p.values, all_keys = p.groups * p.keys;
    size_t width = (size_t)(inner + 2 * all_keys);
    const uint16_t *mixed = p.mixed + (size_t)(at.first + token) * width;
    bool whole = p.keys % STATE_RUN == 0 && inner % STATE_RUN == 0;
    int left = min(at.count - token, TOKENS);
#pragma unroll
    for (int i = 0; i < out->RUNS_EACH; i++) {
        int index = (int)threadIdx.x + i * SCAN_THREADS, row = index / RUNS, run = index % RUNS * STATE_RUN;
        const uint16_t *b = mixed + (size_t)row * width + inner + group * p.keys;
        bool there = row < left && run < p.keys;
        out->b[i] = there ? state_load_run(b, run, p.keys, whole) : make_float4(0, 0, 0, 0);
        out->c[i] = there ? state_load_run(b + all_keys, run, p.keys, whole) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < out->VALUES_EACH; i++) {
        int index = (int)threadIdx.x + i * SCAN_THREADS, row = index / SCAN_COLUMNS;
        int column = at.column + index % SCAN_COLUMNS;
        bool there = row < left && column < p.values;
        out->x[i] = there ? bf16_to_f32(mixed[(size_t)row * width + (size_t)(at.head * p.values + column)]) : 0.0f;
    }
    size_t row = (size_t)(at.first + token) + threadIdx.x;
    out->dt = (int)threadIdx.x < left ? bf16_to_f32(p.dt[row * (size_t)p.heads + (size_t)at.head]) : 0.0f;
}

// Stores it to shared memory. dt is computed once for all columns.
template <int RUNS, int TOKENS>
DEVICE void scan_stage(const struct cuda_ssm_scan &p, int head, const struct scan_raw<RUNS, TOKENS> &raw,
                       struct scan_tile<RUNS, TOKENS> *tile)
{
#pragma unroll
    for (int i = 0; i < raw.RUNS_EACH; i++) {
        int index = (int)threadIdx.x + i * SCAN_THREADS;
        if (index < RUNS * TOKENS) {
            tile->b[index / RUNS][index % RUNS] = raw.b[i];
            tile->c[index / RUNS][index % RUNS] = raw.c[i];
        }
    }
#pragma unroll
    for (int i = 0; i < raw.VALUES_EACH; i++) {
        int index = (int)threadIdx.x + i * SCAN_THREADS;
        if (index < SCAN_COLUMNS * TOKENS)
            tile->x[index / SCAN_COLUMNS][index % SCAN_COLUMNS] = raw.x[i];
    }
    if ((int)threadIdx.x < TOKENS) {
        float dt = raw.dt + p.dt_bias[head];
        dt = dt > SOFTPLUS_LINEAR ? dt : log1pf(expf(dt));
        dt = fminf(fmaxf(dt, p.dt_min), p.dt_max);
        tile->dt[threadIdx.x] = dt;
        tile->decay[threadIdx.x] = expf(p.a[head] * dt);
    }
}

DEVICE void scan_value(float &matrix, float b, float c, float decay, float moved, float &sum)
{
    matrix = fmaf(decay, matrix, b * moved);
    sum = fmaf(matrix, c, sum);
}

// Updates the matrix by one token and returns its product with c.
template <int HELD>
DEVICE float scan_step(float4 matrix[HELD], const float4 *b, const float4 *c, float decay, float moved)
{
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float4 in = b[i * STATE_QUARTERS + state_quarter()], out = c[i * STATE_QUARTERS + state_quarter()];
        scan_value(matrix[i].x, in.x, out.x, decay, moved, sum.x);
        scan_value(matrix[i].y, in.y, out.y, decay, moved, sum.y);
        scan_value(matrix[i].z, in.z, out.z, decay, moved, sum.z);
        scan_value(matrix[i].w, in.w, out.w, decay, moved, sum.w);
    }
    return state_quarters_sum((sum.x + sum.y) + (sum.z + sum.w));
}

// COUNT tokens of a tile from `first` on. Results are stored at the end, so that the tokens overlap.
template <int HELD, int RUNS, int TOKENS, int COUNT>
DEVICE void scan_tokens(const struct scan_tile<RUNS, TOKENS> &tile, int first, int own, float d, float4 matrix[HELD],
                        uint16_t *out, size_t row_values, bool stores)
{
    float result[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float x = tile.x[first + i][own];
        result[i] = fmaf(d, x,
                         scan_step<HELD>(matrix, tile.b[first + i], tile.c[first + i], tile.decay[first + i],
                                         tile.dt[first + i] * x));
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (stores)
            out[(size_t)(first + i) * row_values] = bf16_round(result[i]);
}

// HELD: runs of keys of a lane. TOKENS: of a tile.
template <int HELD, int TOKENS> DEVICE void scan_columns(const struct cuda_ssm_scan &p)
{
    enum { RUNS = HELD * STATE_QUARTERS, TOGETHER = TOKENS > 1 ? 2 : 1 };
    __shared__ struct scan_tile<RUNS, TOKENS> tile;
    kernel_begin();
    int sequence = (int)blockIdx.y, tiles = (p.values + SCAN_COLUMNS - 1) / SCAN_COLUMNS;
    if (sequence >= p.batch.counts[CUDA_SEQUENCES])
        return;
    struct scan_place place = { p.batch.first[sequence], p.batch.count[sequence], 0, (int)blockIdx.x / tiles,
                                (int)blockIdx.x % tiles * SCAN_COLUMNS };
    place.position = p.batch.positions[place.first];
    int own = warp_index() * STATE_WARP_COLUMNS + lane_index() % STATE_WARP_COLUMNS, column = place.column + own;
    size_t at = (size_t)place.head * (size_t)p.keys * (size_t)p.values, row_values = (size_t)(p.heads * p.values);
    const float *before = place.position ? state_at(p.batch, p.state, sequence, place.position - 1) + at : NULL;
    uint16_t *out = p.out + (size_t)place.first * row_values + (size_t)(place.head * p.values + column);
    bool stores = lane_index() < STATE_WARP_COLUMNS && column < p.values;
    float4 matrix[HELD];
    float d = p.d[place.head];
    struct scan_raw<RUNS, TOKENS> raw;
    scan_fetch(p, place, 0, &raw);
    state_load<HELD>(before, p.keys, p.values, column, matrix);
    for (int token = 0; token < place.count; token += TOKENS, out += TOKENS * row_values) {
        int left = min(place.count - token, TOKENS), done = 0;
        scan_stage(p, place.head, raw, &tile);
        __syncthreads();
        if (token + TOKENS < place.count)
            scan_fetch(p, place, token + TOKENS, &raw);
        for (; done + TOGETHER <= left; done += TOGETHER)
            scan_tokens<HELD, RUNS, TOKENS, TOGETHER>(tile, done, own, d, matrix, out, row_values, stores);
        for (; done < left; done++)
            scan_tokens<HELD, RUNS, TOKENS, 1>(tile, done, own, d, matrix, out, row_values, stores);
        __syncthreads();
    }
    state_store<HELD>(state_at(p.batch, p.state, sequence, place.position) + at, p.keys, p.values, column, matrix);
}

// By the most keys, for steps in which every sequence has one token (decode), or for all others (prefill).
#define SCAN(keys, tokens, blocks, word)                                         \
    extern "C" __global__ void __launch_bounds__(SCAN_THREADS, blocks)           \
        ssm_scan_##keys##_##word(const __grid_constant__ struct cuda_ssm_scan p) \
    {                                                                            \
        scan_columns<keys / (STATE_QUARTERS * STATE_RUN), tokens>(p);            \
    }
//   keys  tokens of a tile, blocks per SM
SCAN(128, 1, 5, decode)
SCAN(128, 8, 4, prefill)
SCAN(256, 1, 3, decode)
SCAN(256, 4, 3, prefill)
