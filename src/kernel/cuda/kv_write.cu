// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_write.cu: K and V into their pages, in the formats of the cache; q and k are turned and transformed on
// the way where rope and transform are absorbed. A block has a part of one token's heads; each of its warps has a few of
// q, of k or of v.
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

// Of a sequence's first pages there may be another one.
DEVICE const struct cuda_place &place_of(const struct cuda_kv_write &p, int position)
{
    return position / KV_PAGE_TOKENS < p.sink_pages ? p.sink : p.cache;
}

DEVICE uint8_t *page_of(const struct cuda_batch &batch, const struct cuda_place &place, int row, int position)
{
    int at = batch.table_at[place.class_index * batch.sequences_max + batch.sequence_of[row]];
    int page = batch.tables[at + position / KV_PAGE_TOKENS];
    return place.pool + (uint64_t)page * place.page_bytes;
}

extern "C" __global__ void __launch_bounds__(128) kv_write(const __grid_constant__ struct cuda_kv_write p)
{
    __shared__ struct turn turn;
    launch_next();
    bool with_rope = p.rope.q != NULL, with_transform = p.transform.q != NULL;
    const struct share q = share_of(with_rope ? p.rope.q : p.transform.q, with_rope ? p.rope.heads : p.transform.heads,
                                    p.cache.k_dim, with_rope);
    const struct share k = share_of(p.k, p.cache.heads, p.cache.k_dim, with_rope);
    const struct share v = share_of(p.v, p.cache.heads, p.cache.v_dim, false);
    int q_end = share_warps(q), k_end = q_end + share_warps(k), v_end = k_end + share_warps(v);
    int row = (int)blockIdx.x, first = (int)blockIdx.y * block_warps(), index = first + warp_index();
    bool there = row < p.batch.counts[CUDA_TOKENS];
    int position = there ? p.batch.positions[row] : 0;
    const struct cuda_place &place = place_of(p, position);
    uint8_t *page = there ? page_of(p.batch, place, row, position) : NULL;
    bool is_q = index < q_end, is_v = index >= k_end;
    const struct share own = is_q ? q : is_v ? v : k;
    int lanes = 1 << own.lanes_log, lane = lane_index() & (lanes - 1);
    int head = (index - (is_q ? 0 : is_v ? k_end : q_end)) * share_each(own) + (lane_index() >> own.lanes_log);
    bool has_head = head < own.heads;
    float centre[VECTOR_PART] = {};
    if (p.transform.centre && !is_q && !is_v && has_head)
        vector_load_f32(p.transform.centre + head * own.dim, own.dim, lane, centre);
    if (there && with_rope && first < k_end)
        turn_prepare(&turn, p.rope, position);
    __syncthreads();
    wait_for_previous();
    if (!there || index >= v_end)
        return;

    const uint16_t *vector = own.rows + ((size_t)row * (size_t)own.heads + (size_t)head) * (size_t)own.dim;
    float x[VECTOR_PART] = {};
    if (has_head && own.turned)
        vector_load_turned(&turn, p.rope, vector, lane, x);
    else if (has_head)
        vector_load(vector, own.dim, lane, x);
    __syncwarp();
    if (with_transform && !is_v)
        vector_transform(p.transform, centre, lane, x);
    if (is_q) {
        if (has_head)
            vector_store((uint16_t *)vector, own.dim, lane, x);
        return;
    }
    const struct cuda_side &side = is_v ? place.v : place.k;
    uint32_t at = (uint32_t)(head * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS);
    const struct kv_target to = { page + side.data + at * side.data_bytes, page + side.scales + at * side.scale_bytes,
                                  own.dim, lane, lanes, has_head, side.scale, p.scale_search != 0 };
    kv_store(side.dtype, to, x);
}

// The transform by itself, in place.
extern "C" __global__ void __launch_bounds__(128) transform(const __grid_constant__ struct cuda_transform_rows p)
{
    launch_next();
    const struct cuda_transform &t = p.transform;
    const struct share q = share_of(t.q, t.heads, t.head_dim, false), k = share_of(t.k, t.kv_heads, t.head_dim, false);
    int q_end = share_warps(q), row = (int)blockIdx.x, index = (int)blockIdx.y * block_warps() + warp_index();
    wait_for_previous();
    if (row >= *p.rows || index >= q_end + share_warps(k))
        return;
    bool is_q = index < q_end;
    const struct share own = is_q ? q : k;
    int lane = lane_index() & ((1 << own.lanes_log) - 1);
    int head = (is_q ? index : index - q_end) * share_each(own) + (lane_index() >> own.lanes_log);
    uint16_t *vector = (uint16_t *)own.rows + ((size_t)row * (size_t)own.heads + (size_t)head) * (size_t)own.dim;
    float x[VECTOR_PART] = {}, centre[VECTOR_PART] = {};
    if (head < own.heads)
        vector_load(vector, own.dim, lane, x);
    if (t.centre && !is_q && head < own.heads)
        vector_load_f32(t.centre + head * own.dim, own.dim, lane, centre);
    vector_transform(t, centre, lane, x);
    if (head < own.heads)
        vector_store(vector, own.dim, lane, x);
}
