// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_write.cu: quantises K and V into the pages of the cache, with RoPE and the Hadamard transform of q and
// k fused in front. A block has some heads of one token; each of its warps has one or a few heads of q, of k or of v.
// Its latency adds to every layer of a decode step, so everything that does not depend on the kernel before comes
// before the wait (programmatic dependent launch).
#include "kernel/cuda/kv_store.cuh"

// The heads of one row that are treated alike: those of q, of k or of v.
struct head_group {
    uint16_t *rows;
    int heads, dim, lanes_log;
};

template <int PART> DEVICE struct head_group head_group_of(const uint16_t *rows, int heads, int dim)
{
    return { (uint16_t *)rows, heads, dim, vector_lanes_log<PART>(dim) };
}

// Warps that hold all of them.
DEVICE int head_group_warps(const struct head_group &group)
{
    return ((group.heads << group.lanes_log) + WARP - 1) / WARP;
}

// The vector that a lane has a part of; `there` is its dim, or 0 if the lane has none.
struct held {
    uint16_t *vector;
    int head, dim, there, lane, lanes;
};

DEVICE struct held held_of(const struct head_group &group, int warp, int row)
{
    int lanes = 1 << group.lanes_log, head = warp * (WARP / lanes) + lane_index() / lanes;
    size_t at = (size_t)row * (size_t)group.heads + (size_t)head;
    return { group.rows + at * (size_t)group.dim,
             head,
             group.dim,
             head < group.heads ? group.dim : 0,
             lane_index() % lanes,
             lanes };
}

// The work of a warp.
struct task {
    bool is_q, is_v;
    bool block_rotates; // some warp of the block has q or k
    struct held held;
};

template <int PART> DEVICE struct task task_of(const struct cuda_kv_write &p, int row)
{
    bool with_rope = p.rope.q != NULL;
    const struct head_group q = head_group_of<PART>(with_rope ? p.rope.q : p.transform.q,
                                                    with_rope ? p.rope.heads : p.transform.heads, p.cache.k_dim);
    const struct head_group k = head_group_of<PART>(p.k, p.cache.heads, p.cache.k_dim);
    const struct head_group v = head_group_of<PART>(p.v, p.cache.heads, p.cache.v_dim);
    int q_end = head_group_warps(q), k_end = q_end + head_group_warps(k);
    int first = (int)blockIdx.y * block_warps(), index = first + warp_index();
    bool is_q = index < q_end, is_v = index >= k_end;
    const struct head_group own = is_q ? q : is_v ? v : k;
    return { is_q, is_v, with_rope && first < k_end, held_of(own, index - (is_q ? 0 : is_v ? k_end : q_end), row) };
}

// The sink pages of a sequence have a place of their own.
DEVICE const struct cuda_place &place_of(const struct cuda_kv_write &p, int position)
{
    return position / KV_PAGE_TOKENS < p.sink_pages ? p.sink : p.cache;
}

// Keeps the compiler from computing with a value before this point, where it would wait for the load.
DEVICE int not_before_here(int value)
{
    asm volatile("" : "+r"(value));
    return value;
}

template <int PART> DEVICE void write_row(const struct cuda_kv_write &p)
{
    __shared__ struct rotation rotation;
    launch_next();
    int row = (int)blockIdx.x, count = p.batch.counts[CUDA_TOKENS];
    int position = p.batch.positions[row], sequence = p.batch.sequence_of[row]; // anything, for rows that are not there
    const struct task task = task_of<PART>(p, row);
    const struct held &held = task.held;
    float centre[PART] = {};
    bool centred = p.transform.centre && !task.is_q && !task.is_v;
    if (centred && PART < VECTOR_PART)
        vector_load(p.transform.centre + held.head * held.dim, held.there, held.lane, centre);
    const struct rope_at source = rope_at<PART>(p.rope, held.lane);
    bool there = row < count;
    position = there ? position : 0;
    const struct cuda_place &place = place_of(p, position);
    int table = there ? p.batch.table_at[place.class_index * p.batch.sequences_max + sequence] : 0;
    if (task.block_rotates)
        rotation_prepare<PART>(&rotation, p.rope, position);
    __syncthreads();
    int page = there ? p.batch.tables[table + position / KV_PAGE_TOKENS] : 0;
    wait_for_previous();
    if (!there)
        return;

    float x[PART];
    if (p.rope.q && !task.is_v)
        vector_load_rope(&rotation, p.rope, source, held.vector, held.there, held.lane, x);
    else
        vector_load(held.vector, held.there, held.lane, x);
    __syncwarp();
    if (centred && PART == VECTOR_PART) // late, to use fewer registers
        vector_load(p.transform.centre + held.head * held.dim, held.there, held.lane, centre);
    if (p.transform.q && !task.is_v)
        vector_transform(p.transform, centre, held.lane, x);
    if (task.is_q)
        return vector_store(held.vector, held.there, held.lane, x);
    const struct cuda_side &side = task.is_v ? place.v : place.k;
    uint32_t at = (uint32_t)(held.head * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS);
    uint8_t *bytes = place.pool + (uint64_t)not_before_here(page) * place.page_bytes;
    const struct kv_target to = { bytes + side.data + at * side.data_bytes,
                                  bytes + side.scales + at * side.scale_bytes,
                                  held.dim,
                                  held.lane,
                                  held.lanes,
                                  held.there != 0,
                                  side.scale,
                                  p.scale_search != 0 };
    kv_store(side.dtype, to, x);
}

// In decode, rows leave most of the device idle: their vectors are spread over many lanes, of 4 or 8 values each. In
// prefill, VECTOR_PART values per lane take the fewest instructions, with as many blocks per SM as fit.
#define KERNEL(part, blocks)                                            \
    extern "C" __global__ void __launch_bounds__(4 * WARP, blocks)      \
        kv_write_##part(const __grid_constant__ struct cuda_kv_write p) \
    {                                                                   \
        write_row<part>(p);                                             \
    }
KERNEL(4, 1)
KERNEL(8, 1)
KERNEL(16, 8)

// The transform by itself, in place.
extern "C" __global__ void __launch_bounds__(128) transform(const __grid_constant__ struct cuda_transform_rows p)
{
    launch_next();
    const struct cuda_transform &t = p.transform;
    const struct head_group q = head_group_of<VECTOR_PART>(t.q, t.heads, t.head_dim);
    const struct head_group k = head_group_of<VECTOR_PART>(t.k, t.kv_heads, t.head_dim);
    int q_end = head_group_warps(q), row = (int)blockIdx.x, index = (int)blockIdx.y * block_warps() + warp_index();
    bool is_q = index < q_end;
    const struct held held = held_of(is_q ? q : k, is_q ? index : index - q_end, row);
    wait_for_previous();
    if (row >= *p.rows)
        return;
    float x[VECTOR_PART], centre[VECTOR_PART] = {};
    vector_load(held.vector, held.there, held.lane, x);
    if (t.centre && !is_q)
        vector_load(t.centre + held.head * held.dim, held.there, held.lane, centre);
    vector_transform(t, centre, held.lane, x);
    vector_store(held.vector, held.there, held.lane, x);
}
