// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/route.cu: the router of a mixture of experts (top-k), the order of its (token, expert) pairs, and the
// weighted sum of the experts' results.
#include "kernel/cuda/common.cuh"
#include "kernel/cuda/experts.h"

// ---- route: a warp per token, of which a lane has every 32nd expert ----

enum { HELD = EXPERTS_MAX / WARP };

struct choice {
    float value;
    int index;
};

DEVICE struct choice higher(struct choice a, struct choice b)
{
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// The highest of the warp's values whose bit is set in `open`, within [first, end); the first of equals.
DEVICE struct choice highest(const float values[HELD], uint32_t open, int first, int end)
{
    struct choice best = { -INFINITY, EXPERTS_MAX };
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int index = i * WARP + lane_index();
        if (open >> i & 1 && index >= first && index < end)
            best = higher(best, { values[i] > -INFINITY ? values[i] : -INFINITY, index });
    }
    for (int step = WARP / 2; step > 0; step /= 2)
        best = higher(best,
                      { __shfl_xor_sync(WARP_ALL, best.value, step), __shfl_xor_sync(WARP_ALL, best.index, step) });
    return best;
}

// A lane's values without the one that was found.
DEVICE uint32_t without(uint32_t open, struct choice found)
{
    return found.index % WARP == lane_index() ? open & ~(1u << found.index / WARP) : open;
}

// Value `index` of the warp's, for all lanes.
DEVICE float value_at(const float values[HELD], int index)
{
    float value = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        value = index / WARP == i ? values[i] : value;
    return __shfl_sync(WARP_ALL, value, index % WARP);
}

DEVICE void score_experts(const struct cuda_route &p, const float *logits, float scores[HELD])
{
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int index = i * WARP + lane_index();
        scores[i] = index < p.routes.experts ? logits[index] : -INFINITY;
        largest = fmaxf(largest, scores[i]);
    }
    largest = lanes_max(largest);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        scores[i] = p.score == ROUTE_SOFTMAX ? expf(scores[i] - largest) : 1 / (1 + expf(-scores[i]));
        sum += scores[i];
    }
    sum = lanes_sum(sum);
#pragma unroll
    for (int i = 0; i < HELD && p.score == ROUTE_SOFTMAX; i++)
        scores[i] /= sum;
}

// The bits of those experts whose groups are looked at. Lane g has group g.
DEVICE uint32_t open_groups(const struct cuda_route &p, const float ranks[HELD], uint32_t open)
{
    int each = p.routes.experts / p.groups;
    float own = -INFINITY;
    for (int group = 0; group < p.groups; group++) {
        float sum = 0;
        uint32_t left = open;
        for (int i = 0; i < p.group_best; i++) {
            struct choice best = highest(ranks, left, group * each, (group + 1) * each);
            sum += best.value;
            left = without(left, best);
        }
        own = lane_index() == group ? sum : own;
    }
    uint32_t looked_at = 0, kept = 0;
    for (int i = 0; i < p.topk_group; i++) {
        struct choice best = { lane_index() < p.groups && !(looked_at >> lane_index() & 1) ? own : -INFINITY,
                               lane_index() < p.groups && !(looked_at >> lane_index() & 1) ? lane_index() : WARP };
        for (int step = WARP / 2; step > 0; step /= 2)
            best = higher(best,
                          { __shfl_xor_sync(WARP_ALL, best.value, step), __shfl_xor_sync(WARP_ALL, best.index, step) });
        looked_at |= 1u << best.index % WARP;
    }
#pragma unroll
    for (int i = 0; i < HELD; i++)
        kept |= looked_at >> (i * WARP + lane_index()) / each % WARP & 1u ? 1u << i : 0;
    return open & kept;
}

DEVICE void route_token(const struct cuda_route &p, int row)
{
    int experts = p.routes.experts, top_k = p.routes.top_k, slot_expert = 0;
    float scores[HELD], ranks[HELD], slot_score = 0, sum = 0;
    uint32_t open = 0;
    score_experts(p, p.logits + (size_t)row * experts, scores);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int index = i * WARP + lane_index();
        ranks[i] = scores[i] + (p.bias && index < experts ? p.bias[index] : 0.0f);
        open |= index < experts ? 1u << i : 0;
    }
    if (p.groups > 1)
        open = open_groups(p, ranks, open);
    for (int slot = 0; slot < top_k; slot++) {
        struct choice best = highest(ranks, open, 0, experts);
        float score = value_at(scores, best.index);
        open = without(open, best);
        sum += score;
        slot_expert = lane_index() == slot ? best.index : slot_expert;
        slot_score = lane_index() == slot ? score : slot_score;
    }
    if (lane_index() < top_k) {
        p.routes.expert[(size_t)row * top_k + lane_index()] = slot_expert;
        p.routes.weight[(size_t)row * top_k + lane_index()] = slot_score / (p.normalise ? sum : 1.0f) * p.scale;
    }
}

// ---- the order of pairs: counted, added up, put in place, by one block ----

DEVICE void order_pairs(const struct cuda_routes &routes, int rows)
{
    __shared__ int next[EXPERTS_MAX];
    int pairs = rows * routes.top_k;
    for (int i = (int)threadIdx.x; i < EXPERTS_MAX; i += (int)blockDim.x)
        next[i] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < pairs; i += (int)blockDim.x)
        atomicAdd(&next[routes.expert[i]], 1);
    __syncthreads();
    if (warp_index() == 0) {
        int before = 0;
        for (int base = 0; base < routes.experts; base += WARP) {
            int expert = base + lane_index(), count = next[expert], end = count;
            for (int step = 1; step < WARP; step *= 2) {
                int other = __shfl_up_sync(WARP_ALL, end, step);
                end += lane_index() >= step ? other : 0;
            }
            next[expert] = before + end - count;
            if (expert < routes.experts)
                routes.first[expert + 1] = before + end;
            before += __shfl_sync(WARP_ALL, end, WARP - 1);
        }
        if (lane_index() == 0)
            routes.first[0] = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < pairs; i += (int)blockDim.x)
        routes.pair[atomicAdd(&next[routes.expert[i]], 1)] = i;
}

// One block does the order, too.
extern "C" __global__ void __launch_bounds__(ROUTE_WARPS *WARP) route(const __grid_constant__ struct cuda_route p)
{
    kernel_begin();
    int rows = *p.rows, row = (int)blockIdx.x * ROUTE_WARPS + warp_index();
    if (row < rows)
        route_token(p, row);
    __syncthreads();
    if (gridDim.x == 1)
        order_pairs(p.routes, rows);
}

extern "C" __global__ void __launch_bounds__(1024) route_order(const __grid_constant__ struct cuda_route p)
{
    kernel_begin();
    order_pairs(p.routes, *p.rows);
}

// ---- combine: block (row, run of values) ----

extern "C" __global__ void __launch_bounds__(256) combine(const __grid_constant__ struct cuda_combine p)
{
    int row = (int)blockIdx.x, first = (int)(blockIdx.y * blockDim.x + threadIdx.x) * 8;
    kernel_begin();
    if (row >= *p.rows || first >= p.width)
        return;
    const uint16_t *x = p.x + (size_t)row * p.top_k * p.width + first;
    const float *weight = p.weight + (size_t)row * p.top_k;
    size_t at = (size_t)row * p.width + first;
    float sums[8] = {};
    bool whole = p.width % 8 == 0;
    for (int slot = 0; slot < p.top_k; slot++, x += p.width) {
        float values[8] = {};
        if (whole)
            bf16_load(x, values);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (!whole && first + i < p.width)
                values[i] = bf16_to_f32(x[i]);
            sums[i] += weight[slot] * values[i];
        }
    }
    if (whole && !p.f32_out)
        return bf16_store((uint16_t *)p.out + at, sums);
    for (int i = 0; i < 8 && first + i < p.width; i++)
        if (p.f32_out)
            ((float *)p.out)[at + i] = sums[i];
        else
            ((uint16_t *)p.out)[at + i] = bf16_round(sums[i]);
}
