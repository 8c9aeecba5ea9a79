// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_decode.cu: split-KV decode attention (FlashDecoding) over a paged cache, on tensor cores. It is
// bound by memory bandwidth: each byte is read once, by 16-byte cp.async copies several steps ahead, and dequantised in
// registers for all (row, query head) pairs that share it (GQA).
//   attention_work.cuh      the work list
//   attention_schedule.cuh  the tile scheduler
//   attention_feed.cuh      the cp.async pipeline of pages
//   dequantise.cuh          dequantisation in registers
//   attention_step.cuh      scores, online softmax, weighted sums of V
//   attention_sink.cuh      sink pages, which are kept in 16 bits
//   attention_result.cuh    combining splits (log-sum-exp)
//   attention_plain.cuh     the same without tensor cores, for all other formats and head sizes
#include "kernel/cuda/attention_plain.cuh"
#include "kernel/cuda/attention_result.cuh"
#include "kernel/cuda/attention_sink.cuh"

template <class W>
DEVICE void tile_query(const struct cuda_attention &p, const struct work_tile &tile, struct query<W::D> *query)
{
    struct column column = column_of(p, tile, lane_index() / 4);
    size_t at = (size_t)(tile.first + column.row) * (size_t)p.heads + (size_t)column.head;
    query_load<W>(has_query(p, tile, column) ? p.q + at * W::D : NULL, query);
}

// Waits until the kernels before are done; from then on the CTA may claim further tiles.
DEVICE void feed_wait(const struct work &work, struct scheduler *scheduler)
{
    wait_for_previous();
    scheduler_claim(work, scheduler, 1);
}

// Starts copying the first steps, and returns once the kernels before are done: they write the queries and the tokens
// of this step, while earlier tokens can be copied before.
template <class W>
DEVICE void feed_begin(const struct cuda_attention &p, const struct work &work, const struct work_tile *first,
                       struct feed *feed, uint32_t ring)
{
    bool waited = false;
    if (!first || !feed_enter<W>(p, *first, feed)) // then the schedule is round-robin
        feed_next<W>(p, work, feed);
#pragma unroll 1
    for (int i = 0; i < W::STAGES - 1; i++) {
        bool is_last = work.is_dynamic && feed->step + 1 == feed->steps_end;
        if (!waited && (is_last || (feed->step + 1) * W::TOKENS > feed->new_from)) {
            feed_wait(work, feed->scheduler);
            waited = true;
        }
        feed_step<W>(p, work, feed, ring + i * W::STAGE_BYTES);
    }
    if (!waited)
        feed_wait(work, feed->scheduler);
}

// Copies within shared memory, by all lanes.
DEVICE void tile_copy(struct work_tile *to, const struct work_tile *from)
{
    constexpr int WORDS = sizeof *to / sizeof(uint32_t);
    static_assert(WORDS <= WARP && sizeof *to % sizeof(uint32_t) == 0, "a word for each lane");
    __syncwarp();
    if (lane_index() < WORDS)
        ((uint32_t *)to)[lane_index()] = ((const uint32_t *)from)[lane_index()];
    __syncwarp();
}

// Gets the CTA's tile `number`, which the pipeline of copies has most often reached already. False behind the last one.
DEVICE bool tile_take(const struct cuda_attention &p, const struct work &work, int number, const struct feed &feed,
                      struct work_tile *to)
{
    if (!feed.over && feed.number == number) {
        tile_copy(to, feed.tile);
        return true;
    }
    struct work_tile tile;
    bool more = scheduler_tile(p, work, feed.scheduler, number, &tile);
    tile_put(to, tile);
    return more;
}

// The steps of one split.
template <class W>
DEVICE void attend_split(const struct cuda_attention &p, const struct work &work, const struct work_tile &tile,
                         int split, struct ring *ring, struct feed *feed, const struct query<W::D> &query,
                         struct running<W::D> *state)
{
    const struct seen_by_all seen = seen_by_all<W>(p, tile);
    float score_scale = p.scale * LOG2_E * unit_of(p.cache.k, W::D);
    for (int step = first_step<W>(tile, split), end = first_step<W>(tile, split + 1); step < end; step++) {
        copies_wait<W::STAGES - 2>();
        __syncwarp();
        feed_step<W>(p, work, feed, ring->address + ring->free_stage * W::STAGE_BYTES);
        attend_step<W>(p, ring->bytes + ring->stage * W::STAGE_BYTES, step, tile, seen, score_scale, query, state);
        ring->free_stage = ring->stage;
        ring->stage = ring->stage + 1 == W::STAGES ? 0 : ring->stage + 1;
    }
    unbias<W>(state);
}

// This warp's splits of a tile, one after the other. In half tiles every other split has the second half of the
// columns. If there are four splits, the sum of the first two is kept aside.
template <class W>
DEVICE void attend_splits(const struct cuda_attention &p, const struct work &work, const struct work_tile &tile,
                          struct node<W::D> *kept, struct ring *ring, struct feed *feed,
                          const struct query<W::D> &query, struct running<W::D> *state)
{
    int half = tile.is_half ? lane_index() % 4 / 2 : 0;
    float maximum[2] = { SCORE_NONE, SCORE_NONE };
#pragma unroll 1
    for (int i = 0; i < tile.splits; i++) {
        if (W::SPLITS_MAX > 2 && i == 2) {
            state->maximum[0] = maximum[0], state->maximum[1] = maximum[1];
            node_make(*state, kept);
            running_clear(tile, state);
            maximum[0] = maximum[1] = SCORE_NONE;
        } else if (i > 0)
            state->maximum[0] = state->maximum[1] = half == i % 2 ? SCORE_NONE : SCORE_ALL;
        attend_split<W>(p, work, tile, tile.split + i, ring, feed, query, state);
        if (half == i % 2)
            maximum[0] = state->maximum[0], maximum[1] = state->maximum[1];
    }
    state->maximum[0] = maximum[0], state->maximum[1] = maximum[1];
}

// Whether a warp begins with sink pages: they are kept in 16 bits beside formats of fewer bits that are not rotated.
template <class W> DEVICE bool begins_with_sink(const struct cuda_attention &p, const struct work_tile &tile)
{
    constexpr bool HAS = !(form<W::K>::WIDE && form<W::V>::WIDE) && W::K != FORM_INT4 && W::V != FORM_INT4;
    return HAS && tile.split == 0 && first_seen(p, tile.last - tile.rows + 1) < sink_tokens(p);
}

template <class W> DEVICE void attend(const struct cuda_attention &p)
{
    static_assert(W::STAGES <= 3, "CLAIMS_KNOWN");
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ struct scheduler scheduler;
    // Each warp has its tile, the next one, and the one it copies. They are seldom read, and registers are scarce.
    __shared__ struct work_tile tiles[W::WARPS][3];
    scheduler_open(&scheduler);
    const struct work work = work_list(p, (struct sequence_work *)(shared + W::SHARED_BYTES));
    struct work_tile &tile = tiles[warp_index()][0], &next = tiles[warp_index()][1];
    struct feed feed = { .scheduler = &scheduler, .tile = &tiles[warp_index()][2], .number = -1 };
    bool more = tile_take(p, work, 0, feed, &tile);
    feed.number = 0;
    if (more && begins_with_sink<W>(p, tile))
        sink_prefetch(p, tile);
    struct ring ring = { shared + warp_index() * W::RING_BYTES };
    ring.address = shared_address(ring.bytes);
    ring.free_stage = W::STAGES - 1;
    feed_begin<W>(p, work, more ? &tile : NULL, &feed, ring.address);

    struct query<W::D> query;
    if (more)
        tile_query<W>(p, tile, &query);
    for (int n = 1; more; n++) {
        struct running<W::D> state;
        struct node<W::D> kept;
        running_clear(tile, &state);
        if (begins_with_sink<W>(p, tile))
            attend_sink<W::D>(p, tile, query.pairs, &state);
        query_convert<W>(&query);
        attend_splits<W>(p, work, tile, &kept, &ring, &feed, query, &state);
        more = tile_take(p, work, n, feed, &next);
        if (more && begins_with_sink<W>(p, next))
            sink_prefetch(p, next);
        if (more)
            tile_query<W>(p, next, &query); // loads while results are combined
        tile_end<W>(p, tile, shared, ring.free_stage, state, kept);
        tile_copy(&tile, &next);
    }
}

#if defined(__CUDA_ARCH__) && defined(CUDA_PTX)
#define ARCHITECTURE CUDA_PTX_SM
#elif defined(__CUDA_ARCH__)
#define ARCHITECTURE (__CUDA_ARCH__ / 10)
#else
#define ARCHITECTURE 0 // nothing is compiled for the host
#endif
#define X(name, K, V, DIM, ...) DECODE(attention_decode_##name##_##DIM, FORM_##K, FORM_##V, DIM, __VA_ARGS__)
#define DECODE(...) DECODE_KERNEL(__VA_ARGS__)
#define DECODE_KERNEL(name, K, V, DIM, WARPS, STAGES, PAGES, BLOCKS, PARTS, EACH)                          \
    extern "C" __global__ void __launch_bounds__(DECODE_WARPS(WARPS, BLOCKS, ARCHITECTURE) * WARP, BLOCKS) \
        name(const __grid_constant__ struct cuda_attention p)                                              \
    {                                                                                                      \
        attend<decode_config<K, V, DIM, DECODE_WARPS(WARPS, BLOCKS, ARCHITECTURE),                         \
                             DECODE_STAGES(STAGES, ARCHITECTURE), PAGES, EACH>>(p);                        \
    }
DECODE_KERNELS(X)
DECODE_SMALL_KERNELS(X)
