// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/elementwise.cu: the ops of one row at a time: embed, RMSNorm, RoPE, act_mul, add, pick, softcap, copy,
// all_reduce, all_gather. All are bound by memory bandwidth: accesses are 16 bytes wherever rows allow it.
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/weight.cuh"

// ---- embed: block (row, run of values) ----

template <class Block, int VALUES> DEVICE void embed_run(const struct cuda_embed &p, const uint8_t *row, float *out)
{
    const Block *blocks = (const Block *)row;
    int first = (int)(blockIdx.y * blockDim.x + threadIdx.x) * 4;
    if (first >= p.width)
        return;
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) // (first | i) lets the compiler see that blocks begin at no i but 0
        if (VALUES > 1 || first + i < p.width)
            x[i] = weight_value(blocks + (first | i) / VALUES, (first | i) % VALUES) * p.scale;
    if (p.width % 4 == 0)
        *(float4 *)(out + first) = make_float4(x[0], x[1], x[2], x[3]);
    else
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (first + i < p.width)
                out[first + i] = x[i];
}

DEVICE void embed_nothing(const struct cuda_embed &p, float *out)
{
    int first = (int)(blockIdx.y * blockDim.x + threadIdx.x) * 4;
    for (int i = first; i < min(first + 4, p.width); i++)
        out[i] = 0;
}

extern "C" __global__ void __launch_bounds__(256) embed(const __grid_constant__ struct cuda_embed p)
{
    kernel_begin();
    int row = (int)blockIdx.x;
    if (row >= p.batch.counts[CUDA_TOKENS])
        return;
    int id = p.batch.ids[row];
    if (id < 0)
        id = max(p.batch.drawn[~id], 0); // where no token could be drawn, the result is not used
    id -= p.first;
    float *out = p.out + (size_t)row * (size_t)p.width;
    if (id < 0 || id >= p.rows)
        return embed_nothing(p, out);
    const uint8_t *in = p.table + (uint64_t)id * p.row_bytes;
    switch (p.dtype) {
#define EMBED_NONE(id, block)
#define EMBED_KV(id, block)
#define EMBED_LATENT(id, block)
#define EMBED_W(id, block) \
    case DTYPE_##id: return embed_run<struct id, block>(p, in, out);
#define EMBED_W_KV(id, block) EMBED_W(id, block)
#define X(id, word, use, bits, block, ...) EMBED_##use(id, block)
        DTYPES(X)
#undef X
    }
}

// ---- norm: RMSNorm of each group by group_threads threads ----

enum { NORM_EACH = 8 };

// Values [i, i + 8) of a group, those past its end as 0.
DEVICE void norm_load(const float *x, int i, int width, float values[NORM_EACH])
{
    if (width % NORM_EACH == 0)
        return f32_load(x + i, values);
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        values[j] = i + j < width ? x[i + j] : 0.0f;
}

DEVICE void norm_load(const uint16_t *x, int i, int width, float values[NORM_EACH])
{
    if (width % NORM_EACH == 0)
        return bf16_load(x + i, values);
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        values[j] = i + j < width ? bf16_to_f32(x[i + j]) : 0.0f;
}

DEVICE float sum_of_squares(const float values[NORM_EACH])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < NORM_EACH; i++)
        sum += values[i] * values[i];
    return sum;
}

DEVICE void norm_store(uint16_t *out, int i, int width, const float x[NORM_EACH], float factor,
                       const float weight[NORM_EACH])
{
    float values[NORM_EACH];
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        values[j] = x[j] * factor * weight[j];
    if (width % NORM_EACH == 0)
        return bf16_store(out + i, values);
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        if (i + j < width)
            out[i + j] = bf16_round(values[j]);
}

// A thread holds HELD runs of values and their weights in registers; the rest of very wide rows is read twice.
template <class In, int HELD> DEVICE void norm_group(const struct cuda_norm &p)
{
    int width = p.width, group_threads = p.group_threads;
    int group = (int)blockIdx.x * ((int)blockDim.x / group_threads) + (int)threadIdx.x / group_threads;
    int first = (int)threadIdx.x % group_threads * NORM_EACH, step = group_threads * NORM_EACH;
    const float *weights = p.weight + (p.own_weights ? group % p.groups * width : 0);
    float weight[HELD][NORM_EACH], held[HELD][NORM_EACH], squares = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (first + i * step < width)
            norm_load(weights, first + i * step, width, weight[i]);
    int end = group < *p.rows * p.groups ? width : 0; // threads without a group take part in sums
    wait_for_previous();

    size_t at_group = (size_t)group * (size_t)width + (size_t)(group / p.groups) * (size_t)p.gap;
    const In *x = (const In *)p.x + at_group;
    uint16_t *out = p.out + at_group;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (first + i * step < end)
            norm_load(x, first + i * step, width, held[i]);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (first + i * step < end)
            squares += sum_of_squares(held[i]);
    for (int at = first + HELD * step; at < end; at += step) {
        float values[NORM_EACH];
        norm_load(x, at, width, values);
        squares += sum_of_squares(values);
    }
    squares = group_threads <= WARP ? lanes_sum(squares, group_threads) : block_sum(squares);
    float factor = norm_factor(squares, width, p.epsilon);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (first + i * step < end)
            norm_store(out, first + i * step, width, held[i], factor, weight[i]);
    for (int at = first + HELD * step; at < end; at += step) {
        norm_load(x, at, width, held[0]);
        norm_load(weights, at, width, weight[0]);
        norm_store(out, at, width, held[0], factor, weight[0]);
    }
}

extern "C" __global__ void __launch_bounds__(1024) norm_f32(const __grid_constant__ struct cuda_norm p)
{
    launch_next();
    norm_group<float, 2>(p);
}

extern "C" __global__ void __launch_bounds__(1024) norm_bf16(const __grid_constant__ struct cuda_norm p)
{
    launch_next();
    norm_group<uint16_t, 1>(p);
}

// ---- rope: block (row) ----

extern "C" __global__ void __launch_bounds__(512) rope(const __grid_constant__ struct cuda_rope_rows p)
{
    __shared__ struct rotation rotation;
    launch_next();
    int row = (int)blockIdx.x;
    bool has_row = row < p.batch.counts[CUDA_TOKENS];
    if (has_row)
        rotation_prepare<VECTOR_PART>(&rotation, p.rope, p.batch.positions[row]);
    __syncthreads();
    wait_for_previous();
    if (!has_row)
        return;
    int lanes = vector_lanes<VECTOR_PART>(p.rope.head_dim), each = (int)blockDim.x / lanes;
    int vectors = p.rope.heads + p.rope.kv_heads, lane = (int)threadIdx.x % lanes;
    const struct rope_at source = rope_at<VECTOR_PART>(p.rope, lane);
    for (int first = 0; first < vectors; first += each) { // no lane leaves before __syncwarp
        int head = first + (int)threadIdx.x / lanes, dim = head < vectors ? p.rope.head_dim : 0;
        bool is_q = head < p.rope.heads;
        uint16_t *rows = is_q ? p.rope.q : p.rope.k;
        size_t at = is_q ? (size_t)row * (size_t)p.rope.heads + (size_t)head
                         : (size_t)row * (size_t)p.rope.kv_heads + (size_t)(head - p.rope.heads);
        uint16_t *vector = rows + at * (size_t)p.rope.head_dim;
        float x[VECTOR_PART];
        vector_load_rope(&rotation, p.rope, source, vector, dim, lane, x);
        __syncwarp();
        vector_store(vector, dim, lane, x);
    }
}

// The same for latents, whose rotary dims come last, and for vectors longer than a warp holds: a thread has a pair.
extern "C" __global__ void __launch_bounds__(512) rope_latent(const __grid_constant__ struct cuda_rope_rows p)
{
    __shared__ struct rotation rotation;
    launch_next();
    int row = (int)blockIdx.x, pairs = p.rope.rotated / 2;
    bool has_row = row < p.batch.counts[CUDA_TOKENS];
    if (has_row)
        rotation_prepare<VECTOR_PART>(&rotation, p.rope, p.batch.positions[row]);
    __syncthreads();
    wait_for_previous();
    if (!has_row)
        return;
    int each = (int)blockDim.x / pairs, vectors = p.rope.heads + p.rope.kv_heads;
    for (int first = 0; first < vectors; first += each) {
        int head = first + (int)threadIdx.x / pairs, pair = (int)threadIdx.x % pairs;
        bool there = (int)threadIdx.x < each * pairs && head < vectors, is_q = head < p.rope.heads;
        size_t at = is_q ? (size_t)row * (size_t)p.rope.heads + (size_t)head
                         : (size_t)row * (size_t)p.rope.kv_heads + (size_t)(head - p.rope.heads);
        uint16_t *vector = (is_q ? p.rope.q : p.rope.k) + at * (size_t)p.rope.head_dim + p.rope.first;
        float low = there ? rope_value<VECTOR_PART>(&rotation, p.rope, vector, pair) : 0;
        float high = there ? rope_value<VECTOR_PART>(&rotation, p.rope, vector, pair + pairs) : 0;
        __syncthreads(); // all of a vector is read before any of it is written
        if (there) {
            vector[pair] = bf16_round(low);
            vector[pair + pairs] = bf16_round(high);
        }
    }
}

// ---- flat ops: a thread has eight neighbouring values, whatever the rows ----

DEVICE int64_t flat_first() { return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; }

extern "C" __global__ void __launch_bounds__(256) act_mul(const __grid_constant__ struct cuda_act_mul p)
{
    int64_t count = (int64_t)*p.rows * p.width, i = flat_first();
    kernel_begin();
    if (i + 8 <= count && !p.gate_per_row) {
        float gate[8], up[8];
        bf16_load(p.gate + i, gate);
        bf16_load(p.up + i, up);
#pragma unroll
        for (int j = 0; j < 8; j++)
            gate[j] = activate(p.act, gate[j]) * activated_factor(p.act, up[j]);
        bf16_store(p.out + i, gate);
    } else {
        for (int64_t end = min(i + 8, count); i < end; i++)
            p.out[i] = bf16_round(activate(p.act, bf16_to_f32(p.gate[p.gate_per_row ? i / p.width : i]))
                                  * activated_factor(p.act, bf16_to_f32(p.up[i])));
    }
}

extern "C" __global__ void __launch_bounds__(256) add(const __grid_constant__ struct cuda_add p)
{
    int64_t count = (int64_t)*p.rows * p.width, i = flat_first();
    kernel_begin();
    if (i + 8 <= count) {
        float x[8], y[8];
        f32_load(p.x + i, x);
        bf16_load(p.y + i, y);
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[j] += y[j];
        f32_store(p.x + i, x);
    } else {
        for (; i < count; i++)
            p.x[i] += bf16_to_f32(p.y[i]);
    }
}

extern "C" __global__ void __launch_bounds__(256) copy(const __grid_constant__ struct cuda_copy p)
{
    int64_t count = (int64_t)*p.rows * p.width, i = flat_first();
    kernel_begin();
    if (i + 8 <= count) {
        float x[8];
        f32_load(p.x + i, x);
        bf16_store(p.out + i, x);
    } else {
        for (; i < count; i++)
            p.out[i] = bf16_round(p.x[i]);
    }
}

extern "C" __global__ void __launch_bounds__(256) softcap(const __grid_constant__ struct cuda_softcap p)
{
    int64_t count = (int64_t)*p.rows * p.width, i = flat_first();
    kernel_begin();
    if (i + 8 <= count) {
        float x[8];
        f32_load(p.x + i, x);
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[j] = p.cap * tanhf(x[j] / p.cap);
        f32_store(p.x + i, x);
    } else {
        for (; i < count; i++)
            p.x[i] = p.cap * tanhf(p.x[i] / p.cap);
    }
}

// Sums in the order of ranks. `stride` may be any number.
extern "C" __global__ void __launch_bounds__(256) all_reduce(const __grid_constant__ struct cuda_all_reduce p)
{
    int64_t count = (int64_t)*p.rows * p.width, i = flat_first();
    kernel_begin();
    for (int64_t end = min(i + 8, count); i < end; i++) {
        float sum = p.parts[i];
        for (int rank = 1; rank < p.ranks; rank++)
            sum += p.parts[rank * p.stride + i];
        if (p.f32_out)
            ((float *)p.out)[i] = p.adds ? ((float *)p.out)[i] + sum : sum;
        else
            ((uint16_t *)p.out)[i] = bf16_round(sum);
    }
}

// ---- all_gather: block (row, rank) ----

extern "C" __global__ void __launch_bounds__(256) all_gather(const __grid_constant__ struct cuda_all_gather p)
{
    int row = (int)blockIdx.x, rank = (int)blockIdx.y, units = (p.width + p.unit - 1) / p.unit;
    int first = (int)((int64_t)units * rank / p.ranks) * p.unit;
    int end = min((int)((int64_t)units * (rank + 1) / p.ranks) * p.unit, p.width);
    bool there = row < *p.rows;
    kernel_begin();
    const float *in = p.parts + rank * p.stride + (size_t)row * (size_t)(end - first);
    float *out = p.out + (size_t)row * (size_t)p.width;
    for (int i = first + (int)threadIdx.x; there && i < end; i += (int)blockDim.x)
        out[i] = in[i - first];
}

// ---- pick: block (output, run of values) ----

extern "C" __global__ void __launch_bounds__(256) pick(const __grid_constant__ struct cuda_pick p)
{
    int output = (int)blockIdx.x, first = (int)(blockIdx.y * blockDim.x + threadIdx.x) * 4;
    bool there = output < p.batch.counts[CUDA_OUTPUTS] && first < p.width;
    kernel_begin();
    if (!there)
        return;
    const float *in = p.x + (size_t)p.batch.output_rows[output] * (size_t)p.width;
    float *out = p.out + (size_t)output * (size_t)p.width;
    if (p.width % 4 == 0)
        *(float4 *)(out + first) = *(const float4 *)(in + first);
    else
        for (int i = first; i < first + 4 && i < p.width; i++)
            out[i] = in[i];
}
