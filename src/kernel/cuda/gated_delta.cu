// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/gated_delta.cu: the gated delta rule, recurrent form. A warp has some columns of one head's state matrix
// in registers for all tokens that a sequence has in the step. Columns are independent, and each warp normalises q and
// k itself, so that warps need no barrier. DELTA_SHARING lanes share a column: their keys are interleaved in runs of
// four, so that four values of q or k are one load from shared memory. Only the matrix is carried from token to token.
// All else is computed for some tokens at a time, while the loads for the tokens after them are in flight.
#include "kernel/cuda/gated_delta.h"
#include "kernel/cuda/state.cuh"

enum { RUN = DELTA_RUN, SHARING = DELTA_SHARING, WARP_COLUMNS = WARP / SHARING };

#define SOFTPLUS_LINEAR 20.0f // from here on softplus(x) is x

// The addresses of a warp's part of a token in `mixed`, and the distance to the next token.
struct delta_source {
    const uint16_t *query, *key, *value;
    size_t width;
    int keys;
    bool has_column;
};

DEVICE struct delta_source delta_source_of(const struct cuda_gated_delta &p, int head, int column)
{
    int group = p.interleaved ? head % p.groups : head / (p.heads / p.groups), all_keys = p.groups * p.keys;
    return { p.mixed + group * p.keys,
             p.mixed + all_keys + group * p.keys,
             p.mixed + 2 * all_keys + head * p.values + column,
             (size_t)(2 * all_keys + p.heads * p.values),
             p.keys,
             column < p.values };
}

// A token's bits as loaded: nothing waits for them until they are used. A lane has runs lane, lane + WARP ...
template <int LOADS> struct delta_raw {
    uint2 query[LOADS], key[LOADS];
    uint16_t value;
};

// WHOLE: a run lies within the keys or beyond them, at a multiple of its size.
template <bool WHOLE> DEVICE uint2 delta_load_run(const uint16_t *x, int at, int count)
{
    if constexpr (WHOLE) {
        return at < count ? *(const uint2 *)(x + at) : make_uint2(0, 0);
    } else {
        uint32_t half[RUN];
#pragma unroll
        for (int i = 0; i < RUN; i++)
            half[i] = at + i < count ? x[at + i] : 0;
        return make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16);
    }
}

template <bool WHOLE, int LOADS>
DEVICE void delta_fetch(const struct delta_source &from, int row, struct delta_raw<LOADS> *out)
{
    size_t begin = (size_t)row * from.width;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        int at = (lane_index() + i * WARP) * RUN;
        out->query[i] = delta_load_run<WHOLE>(from.query + begin, at, from.keys);
        out->key[i] = delta_load_run<WHOLE>(from.key + begin, at, from.keys);
    }
    out->value = from.has_column ? from.value[begin] : 0;
}

// Normalises a vector to `length`, into shared memory.
template <int LOADS> DEVICE void delta_normalise(const uint2 raw[LOADS], float length, float4 *out)
{
    float4 x[LOADS];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        x[i] = make_float4(bf16_low(raw[i].x), bf16_high(raw[i].x), bf16_low(raw[i].y), bf16_high(raw[i].y));
        squares = fmaf(x[i].w, x[i].w, fmaf(x[i].z, x[i].z, fmaf(x[i].y, x[i].y, fmaf(x[i].x, x[i].x, squares))));
    }
    float factor = length * rsqrtf(lanes_sum(squares) + GATED_DELTA_EPSILON);
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        out[lane_index() + i * WARP] = make_float4(x[i].x * factor, x[i].y * factor, x[i].z * factor, x[i].w * factor);
}

// The sum over the lanes of a column, in each of them.
DEVICE float column_sum(float value)
{
#pragma unroll
    for (int step = WARP_COLUMNS; step < WARP; step *= 2)
        value += __shfl_xor_sync(WARP_ALL, value, step);
    return value;
}

// Updates the matrix by one token and returns its product with the query. fma is explicit, so that all functions below
// give a token the same bits.
template <int HELD>
DEVICE float delta_step(float4 matrix[HELD], const float4 *query, const float4 *key, float decay, float beta,
                        float value)
{
    int part = lane_index() / WARP_COLUMNS;
    float4 recalled = make_float4(0, 0, 0, 0), sum = recalled;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float4 k = key[i * SHARING + part];
        recalled.x = fmaf(matrix[i].x, k.x, recalled.x), recalled.y = fmaf(matrix[i].y, k.y, recalled.y);
        recalled.z = fmaf(matrix[i].z, k.z, recalled.z), recalled.w = fmaf(matrix[i].w, k.w, recalled.w);
    }
    float all = column_sum((recalled.x + recalled.y) + (recalled.z + recalled.w));
    float change = beta * fmaf(-decay, all, value);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float4 k = key[i * SHARING + part], q = query[i * SHARING + part];
        matrix[i].x = fmaf(k.x, change, decay * matrix[i].x), sum.x = fmaf(matrix[i].x, q.x, sum.x);
        matrix[i].y = fmaf(k.y, change, decay * matrix[i].y), sum.y = fmaf(matrix[i].y, q.y, sum.y);
        matrix[i].z = fmaf(k.z, change, decay * matrix[i].z), sum.z = fmaf(matrix[i].z, q.z, sum.z);
        matrix[i].w = fmaf(k.w, change, decay * matrix[i].w), sum.w = fmaf(matrix[i].w, q.w, sum.w);
    }
    return column_sum((sum.x + sum.y) + (sum.z + sum.w));
}

// Loads the keys that a lane has of its column; those past the end are 0.
template <int HELD>
DEVICE void delta_load(const struct cuda_gated_delta &p, const float *from, int column, float4 matrix[HELD])
{
    int part = lane_index() / WARP_COLUMNS;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float x[RUN];
#pragma unroll
        for (int j = 0; j < RUN; j++) {
            int key = (i * SHARING + part) * RUN + j;
            x[j] = from && key < p.keys && column < p.values ? from[(size_t)key * (size_t)p.values + (size_t)column]
                                                             : 0.0f;
        }
        matrix[i] = make_float4(x[0], x[1], x[2], x[3]);
    }
}

template <int HELD>
DEVICE void delta_store(const struct cuda_gated_delta &p, float *to, int column, const float4 matrix[HELD])
{
    int part = lane_index() / WARP_COLUMNS;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const float x[RUN] = { matrix[i].x, matrix[i].y, matrix[i].z, matrix[i].w };
#pragma unroll
        for (int j = 0; j < RUN; j++) {
            int key = (i * SHARING + part) * RUN + j;
            if (key < p.keys && column < p.values)
                to[(size_t)key * (size_t)p.values + (size_t)column] = x[j];
        }
    }
}

// Decay and beta of a token.
DEVICE float2 delta_rates(const struct cuda_gated_delta &p, int row, int head)
{
    size_t at = (size_t)row * (size_t)p.heads + (size_t)head;
    float dt = bf16_to_f32(p.dt[at]) + p.dt_bias[head];
    float decay = expf(p.a[head] * (dt > SOFTPLUS_LINEAR ? dt : log1pf(expf(dt))));
    return make_float2(decay, __fdividef(1, 1 + expf(-bf16_to_f32(p.beta[at]))));
}

// A sequence's rows in the step, and where one head's matrix is before and after them.
struct delta_rows {
    int first, last;
    const float *before; // NULL: all of it is zero
    float *after;
};

// False: there is no such sequence.
DEVICE bool delta_rows_of(const struct cuda_gated_delta &p, int sequence, int head, struct delta_rows *out)
{
    if (sequence >= p.batch.counts[CUDA_SEQUENCES])
        return false;
    size_t at = (size_t)head * (size_t)p.keys * (size_t)p.values;
    int first = p.batch.first[sequence], position = p.batch.positions[first];
    out->first = first;
    out->last = first + p.batch.count[sequence] - 1;
    out->before = position ? state_at(p.batch, p.state, sequence, position - 1) + at : NULL;
    out->after = state_at(p.batch, p.state, sequence, position) + at;
    return true;
}

// Grid (head and columns, sequence). HELD: runs of keys of a lane; AT_ONCE: tokens whose q and k are loaded together.
template <int HELD, int AT_ONCE, bool WHOLE> DEVICE void delta_columns(const struct cuda_gated_delta &p)
{
    constexpr int LOADS = HELD / (WARP / SHARING), WARPS = DELTA_THREADS / WARP;
    __shared__ float4 queries[WARPS][AT_ONCE][LOADS * WARP], keys[WARPS][AT_ONCE][LOADS * WARP];
    launch_next();
    int tiles = (p.values + DELTA_COLUMNS - 1) / DELTA_COLUMNS, head = (int)blockIdx.x / tiles, warp = warp_index();
    int column = (int)blockIdx.x % tiles * DELTA_COLUMNS + warp * WARP_COLUMNS + lane_index() % WARP_COLUMNS;
    struct delta_rows rows;
    bool there = delta_rows_of(p, (int)blockIdx.y, head, &rows);
    wait_for_previous();
    if (!there)
        return;
    int first = rows.first, last = rows.last;
    const struct delta_source source = delta_source_of(p, head, column);
    uint16_t *out = p.out + (size_t)head * (size_t)p.values + (size_t)column;
    float length = rsqrtf((float)p.keys);
    float2 rates = make_float2(0, 0); // of WARP tokens, a lane has one
    float4 matrix[HELD];
    struct delta_raw<LOADS> raw[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) // past the last token, the last one again
        delta_fetch<WHOLE>(source, min(first + i, last), &raw[i]);
    delta_load<HELD>(p, rows.before, column, matrix);
    for (int row = first; row <= last; row += AT_ONCE) {
        float value[AT_ONCE];
        if ((row - first) % WARP == 0)
            rates = delta_rates(p, min(row + lane_index(), last), head);
        __syncwarp(); // the previous contents have been read
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            delta_normalise<LOADS>(raw[i].query, length, queries[warp][i]);
            delta_normalise<LOADS>(raw[i].key, 1, keys[warp][i]);
            value[i] = bf16_to_f32(raw[i].value);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            delta_fetch<WHOLE>(source, min(row + AT_ONCE + i, last), &raw[i]);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (row + i > last)
                break;
            float decay = __shfl_sync(WARP_ALL, rates.x, (row - first + i) % WARP);
            float beta = __shfl_sync(WARP_ALL, rates.y, (row - first + i) % WARP);
            float sum = delta_step<HELD>(matrix, queries[warp][i], keys[warp][i], decay, beta, value[i]);
            if (lane_index() < WARP_COLUMNS && column < p.values)
                out[(size_t)(row + i) * (size_t)p.heads * (size_t)p.values] = bf16_round(sum);
        }
    }
    delta_store<HELD>(p, rows.after, column, matrix);
}

extern "C" __global__ void __launch_bounds__(DELTA_THREADS)
    gated_delta_decode(const __grid_constant__ struct cuda_gated_delta p)
{
    delta_columns<DELTA_KEYS_USUAL / (SHARING * RUN), 1, true>(p);
}

extern "C" __global__ void __launch_bounds__(DELTA_THREADS)
    gated_delta_prefill(const __grid_constant__ struct cuda_gated_delta p)
{
    delta_columns<DELTA_KEYS_USUAL / (SHARING * RUN), DELTA_AT_ONCE, true>(p);
}

extern "C" __global__ void __launch_bounds__(DELTA_THREADS)
    gated_delta_any(const __grid_constant__ struct cuda_gated_delta p)
{
    delta_columns<GATED_DELTA_KEYS_MAX / (SHARING * RUN), 1, false>(p);
}
