// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_write.cu: K and V into their pages, in the formats of the cache; q and k are turned on the way where
// rope is absorbed. A block has a part of one token's heads; each of its warps has a few of q, of k or of v.
#include "kernel/cuda/kv_store.cuh"

// The heads of one row that are dealt with alike.
struct share {
    const uint16_t *rows;
    int heads, dim, lanes_log;
    bool turned;
};

DEVICE struct share share_of(const uint16_t *rows, int heads, int dim, bool turned)
{
    return { rows, heads, dim, vector_lanes_log(dim), turned };
}

// Heads that a warp holds at once, and warps that it takes to hold all of them.
DEVICE int share_each(const struct share &share) { return WARP >> share.lanes_log; }
DEVICE int share_warps(const struct share &share)
{
    return ((share.heads << share.lanes_log) + WARP - 1) / WARP;
}

DEVICE uint8_t *page_of(const struct cuda_kv_write &p, int row, int position)
{
    int sequence = p.batch.sequence_of[row];
    int at = p.batch.table_at[p.cache.class_index * p.batch.sequences_max + sequence];
    int page = p.batch.tables[at + position / KV_PAGE_TOKENS];
    return p.cache.pool + (uint64_t)page * p.cache.page_bytes;
}

extern "C" __global__ void __launch_bounds__(128) kv_write(const __grid_constant__ struct cuda_kv_write p)
{
    __shared__ struct turn turn;
    launch_next();
    bool with_rope = p.rope.q != NULL;
    const struct share q = share_of(p.rope.q, with_rope ? p.rope.heads : 0, p.cache.k_dim, true);
    const struct share k = share_of(p.k, p.cache.heads, p.cache.k_dim, with_rope);
    const struct share v = share_of(p.v, p.cache.heads, p.cache.v_dim, false);
    int q_end = share_warps(q), k_end = q_end + share_warps(k), v_end = k_end + share_warps(v);
    int row = (int)blockIdx.x, first = (int)blockIdx.y * block_warps(), index = first + warp_index();
    bool there = row < p.batch.counts[CUDA_TOKENS];
    int position = there ? p.batch.positions[row] : 0;
    uint8_t *page = there ? page_of(p, row, position) : NULL;
    if (there && with_rope && first < k_end)
        turn_prepare(&turn, p.rope, position);
    __syncthreads();
    wait_for_previous();
    if (!there || index >= v_end)
        return;

    bool is_q = index < q_end, is_v = index >= k_end;
    const struct share own = is_q ? q : is_v ? v : k;
    int lanes = 1 << own.lanes_log, lane = lane_index() & (lanes - 1);
    int head = (index - (is_q ? 0 : is_v ? k_end : q_end)) * share_each(own) + (lane_index() >> own.lanes_log);
    bool has_head = head < own.heads;
    const uint16_t *vector = own.rows + ((size_t)row * (size_t)own.heads + (size_t)head) * (size_t)own.dim;
    float x[VECTOR_PART] = {};
    if (has_head && own.turned)
        vector_load_turned(&turn, p.rope, vector, lane, x);
    else if (has_head)
        vector_load(vector, own.dim, lane, x);
    __syncwarp();
    if (is_q) {
        if (has_head)
            vector_store((uint16_t *)vector, own.dim, lane, x);
        return;
    }
    const struct cuda_side &side = is_v ? p.cache.v : p.cache.k;
    uint32_t at = (uint32_t)(head * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS);
    const struct kv_target to = { page + side.data + at * side.data_bytes, page + side.scales + at * side.scale_bytes,
                                  own.dim, lane, lanes, has_head, side.scale };
    kv_store(side.dtype, to, x);
}
