// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_merge.cuh: one block of rows done by a cluster of thread blocks, each with the tiles
// whose number is its rank, modulo PREFILL_SPLIT: for steps that have few rows, but much that they see. What each found
// is brought together through the others' shared memory, in the order of ranks.
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_MERGE_CUH
#define KERNEL_CUDA_ATTENTION_PREFILL_MERGE_CUH

#include "kernel/cuda/attention_prefill_rows.cuh"
#include "kernel/cuda/attention_prefill_shapes.h"

// All threads of the cluster that have not ended.
DEVICE void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place in another block's shared memory.
DEVICE uint32_t place_in(uint32_t address, int rank)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

DEVICE float2 remote_pair(uint32_t address)
{
    float2 x;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

// What a lane's two rows are to be multiplied with, so that those of all blocks add up to the result. A row's maximum
// and sum lie in its place among the queries, which are no longer needed.
DEVICE void merge_factors(const struct score_rule &rule, const struct softmax_rows &rows, uint32_t queries, int row,
                          float factor[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t at = queries + (row + lane_index() / 4 + i * 8) * PANEL_ROW_BYTES;
        if (lane_index() % 4 == 0)
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(at), "f"(rows.maximum[i]), "f"(rows.sum[i])
                         : "memory");
    }
    cluster_sync();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t at = queries + (row + lane_index() / 4 + i * 8) * PANEL_ROW_BYTES;
        float maximum = -INFINITY, sum = 0;
        for (int rank = 0; rank < PREFILL_SPLIT; rank++)
            maximum = fmaxf(maximum, remote_pair(place_in(at, rank)).x);
        for (int rank = 0; rank < PREFILL_SPLIT; rank++) {
            float2 other = remote_pair(place_in(at, rank));
            sum += other.y * exp2_fast((other.x - maximum) * rule.to_power);
        }
        factor[i] = exp2_fast((rows.maximum[i] - maximum) * rule.to_power) / sum;
    }
}

// Writes the block's rows, each thread block of the cluster some of them. `parts` is where each puts its results,
// (ROWS, D) f32. By `users` threads, who have done with everything else in shared memory.
template <int D, int ROWS>
DEVICE void merge_results(const struct cuda_attention &p, const struct prefill_block &block, uint32_t parts, int row,
                          float o[D / 8][4], const float factor[2], int rank, int users)
{
    constexpr int CHUNKS = D / CHUNK_VALUES, SHARE = ROWS / PREFILL_SPLIT;
    int dim = p.cache.v_dim;
    uint32_t order = order_of(p.cache.v.dtype) >> lane_index() % 4 * 8;
    float fold = fold_of(p.cache.v, dim);
    if (p.cache.v.dtype == DTYPE_INT4_TOKEN)
        rotate_back<D>(o, dim);
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int own = row + lane_index() / 4 + i / 2 * 8, channel = j * 8 + (int)(order >> i % 2 * 4 & 7);
            asm volatile("st.shared.f32 [%0], %1;"
                         :: "r"(parts + (own * D + channel) * 4), "f"(o[j][i] * (factor[i / 2] * fold)) : "memory");
        }
    cluster_sync();
    for (int i = (int)threadIdx.x; i < SHARE * CHUNKS; i += users) {
        int own = rank * SHARE + i / CHUNKS, chunk = i % CHUNKS;
        float sum[CHUNK_VALUES] = {};
        for (int other = 0; other < PREFILL_SPLIT; other++) {
            uint32_t at = place_in(parts + (own * D + chunk * CHUNK_VALUES) * 4, other);
#pragma unroll
            for (int k = 0; k < CHUNK_VALUES; k += 2) {
                float2 x = remote_pair(at + k * 4);
                sum[k] += x.x;
                sum[k + 1] += x.y;
            }
        }
        if (own < block.rows && chunk * CHUNK_VALUES < dim)
            bf16_store(p.out + vector_of(p, block, own) * dim + chunk * CHUNK_VALUES, sum);
    }
    cluster_sync(); // the others have read what is here
}

#endif
