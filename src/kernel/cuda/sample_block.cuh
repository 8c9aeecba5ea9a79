// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/sample_block.cuh: the steps of a draw by one block: reductions, prefix sums and the random number. All
// threads take part in each step and get its result.
#ifndef KERNEL_CUDA_SAMPLE_BLOCK_CUH
#define KERNEL_CUDA_SAMPLE_BLOCK_CUH

#include "kernel/cuda/sample_rule.cuh"

enum {
    CHUNK = CUDA_SAMPLING_CHUNK,
    CHUNKS_MAX = IDS / CHUNK,
    THREADS = 512, // of a draw
    WARPS = THREADS / WARP,
    WARPS_BITS = 4,
    CHUNKS_EACH = CHUNKS_MAX / THREADS,
    LIST_EACH = 8,
    LIST_MAX = LIST_EACH * THREADS,
    DIGIT_BITS = 3, // of a search over keys
    DIGITS = 1 << DIGIT_BITS,
};
static_assert(KEY_BITS % DIGIT_BITS == 0 && WARPS == 1 << WARPS_BITS, "digits are whole");

// ---- a warp, with a chunk at a time ----

// Calls visit(id, logit) on this lane's tokens of a chunk; past the end of the vocabulary logits are -inf.
template <class Visit> DEVICE void visit_chunk(const float *logits, int vocabulary, int chunk, Visit visit)
{
    float x[CHUNK / WARP];
    int first = chunk * CHUNK + lane_index();
    bool whole = (chunk + 1) * CHUNK <= vocabulary;
#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++)
        x[i] = whole || first + i * WARP < vocabulary ? (logits + first)[i * WARP] : -INFINITY;
#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++)
        visit(first + i * WARP, x[i]);
}

DEVICE uint64_t lanes_total(uint64_t value)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(WARP_ALL, value, step);
    return value;
}

// ---- a block ----

struct draw {
    struct cuda_sampling_row row;
    struct rule rule;
    const float *logits;
    const uint64_t *masses;
    const uint64_t *bin_masses;
    const int *bin_counts;
    int vocabulary, chunks;
    uint32_t *peaks;  // shared, as are these: ordered
    uint16_t *chosen; // chunks
    uint64_t *list;   // keys
};

DEVICE int block_min(int value)
{
    __shared__ int parts[WARPS];
    value = __reduce_min_sync(WARP_ALL, value);
    if (lane_index() == 0)
        parts[warp_index()] = value;
    __syncthreads();
    value = __reduce_min_sync(WARP_ALL, parts[lane_index() % WARPS]);
    __syncthreads();
    return value;
}

// The index at which the prefix sum of weights, EACH per thread, reaches `goal`; -1 if it does not.
struct crossing {
    int index;
    uint64_t through; // the sum with that one
    uint64_t total;
};

template <int EACH> DEVICE struct crossing cross(const uint64_t weights[EACH], uint64_t goal)
{
    __shared__ uint64_t parts[WARPS];
    __shared__ struct crossing found;
    uint64_t own = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        own += weights[i];
    uint64_t sum = own; // of the warp up to this lane
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        uint64_t lower = __shfl_up_sync(WARP_ALL, sum, step);
        sum += lane_index() >= step ? lower : 0;
    }
    if (lane_index() == WARP - 1)
        parts[warp_index()] = sum;
    if (threadIdx.x == 0)
        found.index = -1;
    __syncthreads();
    uint64_t total = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
        sum += i < warp_index() ? parts[i] : 0;
        total += parts[i];
    }
    uint64_t reached = sum - own;
    if (reached < goal && goal <= sum) {
        int index = -1;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (reached < goal) {
                reached += weights[i];
                index = i;
            }
        found.index = (int)threadIdx.x * EACH + index;
        found.through = reached;
    }
    __syncthreads();
    struct crossing result = { found.index, found.through, total };
    __syncthreads();
    return result;
}

enum : uint64_t { NOWHERE = ~0ull };

DEVICE uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

// A random number of [1, sum]: the row's number in [0, 1), a pure function of (seed, choice, count), times the sum.
DEVICE uint64_t drawn_part(const struct cuda_sampling_row &row, uint64_t total)
{
    uint64_t key = mix(row.seed + 0x9E3779B97F4A7C15u);
    key = mix(key ^ ((uint64_t)(uint32_t)row.choice << 32 | (uint32_t)row.count));
    uint64_t number = mix(key + 0x9E3779B97F4A7C15u) >> 11 << 11; // 53 bits, as the host's
    return __umul64hi(number, total) + 1;
}

DEVICE uint64_t top_p_part(const struct cuda_sampling_row &row, uint64_t total)
{
    uint64_t part = __double2ull_ru(row.top_p * (double)total);
    return part < 1 ? 1 : part < total ? part : total;
}

// The lowest id with the largest logit.
DEVICE int most_likely(const struct draw &draw)
{
    uint32_t highest = ordered(draw.rule.highest);
    int chunk = INT32_MAX;
    for (int i = (int)threadIdx.x; i < draw.chunks && chunk == INT32_MAX; i += THREADS)
        if (draw.peaks[i] == highest)
            chunk = i;
    int id = block_min(chunk) * CHUNK + (int)threadIdx.x;
    bool here = threadIdx.x < CHUNK && id < draw.vocabulary && ordered(draw.logits[id]) == highest;
    return block_min(here ? id : INT32_MAX);
}

DEVICE void load_masses(const uint64_t *masses, int chunks, uint64_t weights[CHUNKS_EACH])
{
#pragma unroll
    for (int i = 0; i < CHUNKS_EACH; i++) {
        int chunk = (int)threadIdx.x * CHUNKS_EACH + i;
        weights[i] = chunk < chunks ? masses[chunk] : 0;
    }
}

DEVICE uint64_t sum_masses(const uint64_t *masses, int chunks)
{
    uint64_t weights[CHUNKS_EACH];
    load_masses(masses, chunks, weights);
    return cross<CHUNKS_EACH>(weights, NOWHERE).total;
}

// Draws in the order of ids from those whose key is `floor` at least; masses are those of the chunks.
DEVICE int draw_by_id(const struct draw &draw, const uint64_t *masses, uint64_t floor)
{
    uint64_t weights[CHUNKS_EACH];
    load_masses(masses, draw.chunks, weights);
    uint64_t goal = drawn_part(draw.row, cross<CHUNKS_EACH>(weights, NOWHERE).total);
    struct crossing chunk = cross<CHUNKS_EACH>(weights, goal);
    goal -= chunk.through - masses[chunk.index];
    int id = chunk.index * CHUNK + (int)threadIdx.x;
    uint64_t weight = 0;
    if (threadIdx.x < CHUNK && id < draw.vocabulary && key_of(draw.rule, draw.logits[id], id) >= floor)
        weight = weight_of(draw.rule, draw.logits[id]);
    return chunk.index * CHUNK + cross<1>(&weight, goal).index;
}

#endif
