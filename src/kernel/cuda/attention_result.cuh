// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_result.cuh: from the sums of parts to decode attention's result, along the tree of
// attention_split.h: a warp adds up its parts, a block its warps. A sequence of one chunk is then finished; of several,
// each leaves its sums behind (work_partials), and a second kernel adds them up.
#ifndef KERNEL_CUDA_ATTENTION_RESULT_CUH
#define KERNEL_CUDA_ATTENTION_RESULT_CUH

#include "kernel/cuda/attention_step.cuh"

// What a value of V is worth that is unpacked as 1.
DEVICE float unit_of(const struct cuda_side &side, int dim)
{
    switch (side.dtype) {
    case DTYPE_FP8_E4M3:
    case DTYPE_FP8_E5M2:
        return side.scale;
    case DTYPE_NVFP4:
    case DTYPE_NVFP4_4OVER6:
        return side.scale * E2M1_UNIT;
    case DTYPE_INT4_TOKEN:
        return 1 / (float)dim;
    default:
        return 1;
    }
}

// What sums under this maximum are to be multiplied with, once all parts are in: the sink takes part here.
DEVICE float finish_factor(const struct cuda_attention &p, int head, float maximum, float sum)
{
    float top = maximum, sink = p.sinks ? p.sinks[head] * LOG2_E : SCORE_NONE;
    top = fmaxf(top, sink);
    float keep = power_of_two(maximum - top);
    return __fdividef(keep, sum * keep + power_of_two(sink - top));
}

// ---- within a block ----

// A warp's sums [D / 4][lane], then the columns' maxima and sums of shares.
template <class W> DEVICE void result_put(float *to, const struct running<W::D> *state)
{
#pragma unroll
    for (int i = 0; i < W::D / 4; i++)
        to[i * WARP + lane_index()] = state->out[i / 4][i % 4];
    float *columns = to + W::D / 4 * WARP + lane_index() % 4 * 2;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float sum = state->sum[c];
#pragma unroll
        for (int step = 4; step < WARP; step *= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
        if (lane_index() < 4) {
            columns[c] = state->maximum[c];
            columns[COLUMNS + c] = sum;
        }
    }
}

// What COUNT neighbours are together, a power of two.
template <int COUNT> DEVICE float tree_sum(float x[COUNT])
{
#pragma unroll
    for (int step = 1; step < COUNT; step *= 2)
#pragma unroll
        for (int i = 0; i < COUNT; i += 2 * step)
            x[i] += x[i + step];
    return x[0];
}

// Adds up four channels of the columns 2t + c, of all warps, and writes them: finished, of a sequence of one chunk, or
// as what this chunk leaves behind. A warp's second part is COLUMNS / 2 columns, and two lanes, away.
template <class W>
DEVICE void result_add(const struct cuda_attention &p, const struct piece &piece, const float *const from[W::WARPS],
                       int quarter, int c)
{
    constexpr int D = W::D, TILES = D / 4 * WARP;
    int g = lane_index() / 4, t = lane_index() % 4, tile = quarter / 2 * 4, side = quarter % 2 * 2 + c;
    int own = TILES + 2 * t + c, other = own ^ COLUMNS / 2;
    bool twice = piece.parts > 1;
    float top = SCORE_NONE, weight[W::WARPS], second[W::WARPS], sums[W::WARPS], x[4];
#pragma unroll
    for (int i = 0; i < W::WARPS; i++)
        top = fmaxf(top, twice ? fmaxf(from[i][own], from[i][other]) : from[i][own]);
#pragma unroll
    for (int i = 0; i < W::WARPS; i++) {
        weight[i] = weight_of(from[i][own], top);
        sums[i] = weight[i] * from[i][own + COLUMNS];
    }
    if (twice)
#pragma unroll
        for (int i = 0; i < W::WARPS; i++) {
            second[i] = weight_of(from[i][other], top);
            sums[i] += second[i] * from[i][other + COLUMNS];
        }
    float sum = tree_sum<W::WARPS>(sums);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int at = ((tile + j) * 4 + side) * WARP + lane_index();
#pragma unroll
        for (int i = 0; i < W::WARPS; i++)
            sums[i] = weight[i] * from[i][at];
        if (twice)
#pragma unroll
            for (int i = 0; i < W::WARPS; i++)
                sums[i] += second[i] * from[i][at ^ 2];
        x[j] = tree_sum<W::WARPS>(sums);
    }
    struct column column = column_of(p, piece, 2 * t + c);
    if (!has_query(p, piece, column) || (piece.narrow && t >= 2))
        return;
    int at = g * (D / 8) + quarter * 4;
    bool finished = W::V != FORM_INT4 && piece.chunks == 1, first = g == 0 && quarter == 0;
    float *partial = work_partials(p, piece.sequence, piece.rows, column.row, column.head)
                   + piece.chunk * (D + SPLIT_TAIL);
    if (finished) {
        float factor = finish_factor(p, column.head, top, sum) * unit_of(p.cache.v, D);
        uint16_t *out = p.out + ((size_t)(piece.first + column.row) * (size_t)p.heads + (size_t)column.head) * D;
        *(uint2 *)(out + at) =
            make_uint2(bf16_pair(x[0] * factor, x[1] * factor), bf16_pair(x[2] * factor, x[3] * factor));
    } else
        *(float4 *)(partial + at) = make_float4(x[0], x[1], x[2], x[3]);
    if (first)
        *(float4 *)(partial + D) = make_float4(top, sum, (float)piece.chunks, 0);
}

// A piece is done: its warps leave their results in shared memory and add them up, some channels each.
template <class W>
DEVICE void piece_end(const struct cuda_attention &p, const struct piece &piece, uint8_t *shared, int free_stage,
                      const struct running<W::D> *state)
{
    __shared__ int places[W::WARPS];
    int place = warp_index() * W::RING_BYTES + free_stage * W::STAGE_BYTES;
    __syncwarp();
    result_put<W>((float *)(shared + place), state);
    if (lane_index() == 0)
        places[warp_index()] = place;
    __syncthreads();
    const float *from[W::WARPS];
#pragma unroll
    for (int i = 0; i < W::WARPS; i++)
        from[i] = (const float *)(shared + places[i]);
#pragma unroll 1
    for (int i = warp_index(); i < W::D / 16; i += W::WARPS)
        result_add<W>(p, piece, from, i / 2, i % 2);
    __syncthreads();
}

// ---- across chunks ----

// Chunks that are added up at once, and the warps of a block. More sequences than MERGE_FEW are likely to be of one
// chunk each: then nothing is read that will not be needed.
enum { MERGE_GROUP = 8, MERGE_WARPS = 4, MERGE_FEW = 4 };
static_assert(1 << SPLIT_LOG_RESULTS <= 2 * MERGE_GROUP, "one group and another");

// The two halves of a rotation (kernel/ref/kv_codec.h), by the whole block.
DEVICE void hadamard(float *x, int dim)
{
    for (int stride = 1; stride < dim; stride *= 2) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < dim / 2; i += (int)blockDim.x) {
            int at = i / stride * stride * 2 + i % stride;
            float a = x[at], b = x[at + stride];
            x[at] = a + b;
            x[at + stride] = a - b;
        }
    }
    __syncthreads();
}

DEVICE void flip_signs(float *x, int dim)
{
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        if (kv_rotation_signs(i / 64) >> i % 64 & 1)
            x[i] = -x[i];
    __syncthreads();
}

// Four channels of a group.
struct merged {
    float x[4], maximum, sum;
};

// Of chunks `begin` and the next ones. All loads are under way before the first is used, that of the number of chunks
// among them, but none behind chunk `last`.
DEVICE struct merged merge_group(const float *partials, int begin, int last, int dim, int at)
{
    struct merged group = { .maximum = SCORE_NONE };
    float4 x[MERGE_GROUP];
    float2 tail[MERGE_GROUP];
    float weight[MERGE_GROUP], sums[MERGE_GROUP];
    int count = (int)partials[dim + SPLIT_CHUNKS] - begin;
#pragma unroll
    for (int i = 0; i < MERGE_GROUP; i++) {
        const float *chunk = partials + min(begin + i, last) * (dim + SPLIT_TAIL);
        tail[i] = *(const float2 *)(chunk + dim);
        x[i] = *(const float4 *)(chunk + at);
    }
#pragma unroll
    for (int i = 0; i < MERGE_GROUP; i++)
        group.maximum = i < count ? fmaxf(group.maximum, tail[i].x) : group.maximum;
#pragma unroll
    for (int i = 0; i < MERGE_GROUP; i++) {
        weight[i] = weight_of(tail[i].x, group.maximum);
        sums[i] = i < count ? weight[i] * tail[i].y : 0;
    }
    group.sum = tree_sum<MERGE_GROUP>(sums);
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int i = 0; i < MERGE_GROUP; i++)
            sums[i] = i < count ? weight[i] * (j == 0 ? x[i].x : j == 1 ? x[i].y : j == 2 ? x[i].z : x[i].w) : 0;
        group.x[j] = tree_sum<MERGE_GROUP>(sums);
    }
    return group;
}

DEVICE void merge_add(struct merged *group, const struct merged &other)
{
    float top = fmaxf(group->maximum, other.maximum);
    float own = weight_of(group->maximum, top), theirs = weight_of(other.maximum, top);
    group->maximum = top;
    group->sum = own * group->sum + theirs * other.sum;
#pragma unroll
    for (int j = 0; j < 4; j++)
        group->x[j] = own * group->x[j] + theirs * other.x[j];
}

// One row and head, by a warp, to `out`, or, where values are rotated, to `rotated`.
DEVICE void merge(const struct cuda_attention &p, const float *partials, int last, int head, uint16_t *out,
                  float *rotated)
{
    int dim = p.cache.v_dim;
    for (int at = 4 * lane_index(); at < dim; at += 4 * WARP) {
        struct merged all = merge_group(partials, 0, last, dim, at);
        int chunks = (int)partials[dim + SPLIT_CHUNKS];
        if (chunks == 1 && !rotated)
            return; // it is finished already
        if (chunks > MERGE_GROUP)
            merge_add(&all, merge_group(partials, MERGE_GROUP, last, dim, at));
        float factor = finish_factor(p, head, all.maximum, all.sum) * unit_of(p.cache.v, dim);
        float4 x = make_float4(all.x[0] * factor, all.x[1] * factor, all.x[2] * factor, all.x[3] * factor);
        if (rotated)
            *(float4 *)(rotated + at) = x;
        else
            *(uint2 *)(out + at) = make_uint2(bf16_pair(x.x, x.y), bf16_pair(x.z, x.w));
    }
}

// Block (heads, row of a sequence, sequence): each warp has a head; where values are rotated there is one, and shared
// memory for them.
extern "C" __global__ void __launch_bounds__(MERGE_WARPS *WARP)
    attention_decode_merge(const __grid_constant__ struct cuda_attention p)
{
    extern __shared__ __align__(16) float values[];
    int head = (int)blockIdx.x * block_warps() + warp_index(), row = (int)blockIdx.y, sequence = (int)blockIdx.z;
    int first = p.batch.first[sequence], rows = p.batch.count[sequence], sequences = p.batch.counts[CUDA_SEQUENCES];
    int dim = p.cache.v_dim;
    bool rotated = p.cache.v.dtype == DTYPE_INT4_TOKEN;
    launch_next();
    wait_for_previous();
    if (sequence >= sequences || rows < p.rows_min || rows > p.rows_max || row >= rows || head >= p.heads)
        return;
    const float *partials = work_partials(p, sequence, rows, row, head);
    int last = (int)gridDim.z > MERGE_FEW ? (int)partials[dim + SPLIT_CHUNKS] - 1 : (1 << split_log_results(rows)) - 1;
    if (last == 0 && !rotated)
        return;
    uint16_t *out = p.out + ((size_t)(first + row) * (size_t)p.heads + (size_t)head) * (size_t)dim;
    merge(p, partials, last, head, out, rotated ? values : NULL);
    if (!rotated)
        return;
    hadamard(values, dim);
    flip_signs(values, dim);
    for (int i = 2 * lane_index(); i < dim; i += 2 * WARP)
        *(uint32_t *)(out + i) = bf16_pair(values[i], values[i + 1]);
}

#endif
