// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_feed.cuh: the multistage cp.async pipeline of decode attention. Each warp has its own ring of
// stages in shared memory and copies its steps, PAGES pages each, several steps ahead and across the work tiles of its
// CTA.
#ifndef KERNEL_CUDA_ATTENTION_FEED_CUH
#define KERNEL_CUDA_ATTENTION_FEED_CUH

#include "kernel/cuda/attention_schedule.cuh"
#include "kernel/cuda/dequantise.cuh"

// The configuration of one kernel: the formats of K and V, the head size, and the line of attention_shapes.h.
template <int K_FORM, int V_FORM, int D_, int WARPS_, int STAGES_, int PAGES_, int LOG_EACH> struct decode_config {
    static constexpr int K = K_FORM, V = V_FORM, D = D_, WARPS = WARPS_, STAGES = STAGES_, PAGES = PAGES_;
    static constexpr int TOKENS = PAGES * PAGE_TOKENS, STEPS = SPLIT_TOKENS / TOKENS; // of a step; of a block of tokens
    static constexpr int SPLITS_MAX = 1 << LOG_EACH;                                  // that a warp does in a row
    static constexpr int K_ROW = D / UNIT * form<K>::WORDS * 4, V_ROW = D / UNIT * form<V>::WORDS * 4;
    template <int FORM> static constexpr int scale_bytes()
    {
        return form<FORM>::BY_TOKEN ? 4 : form<FORM>::BY_BLOCK ? D / 16 : 0;
    }
    static constexpr int K_SCALE = scale_bytes<K>(), V_SCALE = scale_bytes<V>(); // of a token

    // A stage: for each page the rows of K and of V, then for each page the scales of K and of V.
    static constexpr int PAGE_BYTES = PAGE_TOKENS * (K_ROW + V_ROW), PAGE_SCALES = PAGE_TOKENS * (K_SCALE + V_SCALE);
    static constexpr int FETCHED_BYTES = PAGES * (PAGE_BYTES + PAGE_SCALES);

    // A warp writes its result of a tile into the free stage: D / 4 sums per lane, and the maximum and the softmax
    // denominator of each column.
    static constexpr int RESULT_BYTES = (D / 4 * WARP + 2 * COLUMNS) * 4;
    static constexpr int STAGE_BYTES = FETCHED_BYTES > RESULT_BYTES ? FETCHED_BYTES : (RESULT_BYTES + 127) / 128 * 128;
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES, SHARED_BYTES = WARPS * RING_BYTES;
};

// A warp's stages: the one that is computed next, and the one before it.
struct ring {
    uint8_t *bytes;
    uint32_t address;
    int stage, free_stage;
};

struct feed {
    struct scheduler *scheduler;
    struct work_tile *tile; // in shared memory: a copy of the tile that is being copied, unless it is the first
    const int32_t *table;
    const uint8_t *k, *v, *scales; // the lane's first chunk of each, in page 0
    int number;                    // of that tile among the CTA's
    int step, steps_end;
    int first_page, last_page; // that the rows see
    int new_from;              // the first token of this step
    int32_t pages[2];          // of the next step
    bool over;
};

DEVICE void copy_chunk(uint32_t to, const uint8_t *from)
{
#ifdef READ_ONCE
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(READ_ONCE)
                 : "memory");
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#endif
}

// The address in this page that corresponds to `at` in page 0.
DEVICE const uint8_t *in_page(const struct cuda_attention &p, int32_t page, const uint8_t *at)
{
    return at + (uint64_t)(uint32_t)page * (uint32_t)p.cache.page_bytes;
}

// A KV block may begin before the tokens that are seen, or end behind them: then a page is copied twice, and its scores
// are masked.
template <class W> DEVICE void feed_pages(struct feed *feed)
{
#pragma unroll
    for (int i = 0; i < W::PAGES; i++)
        feed->pages[i] = feed->table[min(max(feed->step * W::PAGES + i, feed->first_page), feed->last_page)];
}

// The first step of a split.
template <class W> DEVICE int first_step(const struct work_tile &tile, int split)
{
    return split_begin(tile, split) * W::STEPS;
}

// Which scales a lane copies: 16 bytes of the scales of 16 tokens, K or V, of one page.
template <class W> struct scale_copy {
    static constexpr int K_CHUNKS = W::K_SCALE, V_CHUNKS = W::V_SCALE, CHUNKS = K_CHUNKS + V_CHUNKS;
    static_assert(W::PAGES * CHUNKS <= WARP, "one for each lane");
    DEVICE int page() { return lane_index() >= CHUNKS; }
    DEVICE int chunk() { return lane_index() - page() * CHUNKS; }
    DEVICE bool is_k() { return chunk() < K_CHUNKS; }
};

template <class W> DEVICE void feed_head(const struct cuda_attention &p, int head, struct feed *feed)
{
    uint32_t vectors = (uint32_t)head * PAGE_TOKENS, lane = (uint32_t)lane_index() * 16;
    feed->k = p.cache.pool + (p.cache.k.data + vectors * W::K_ROW + lane);
    feed->v = p.cache.pool + (p.cache.v.data + vectors * W::V_ROW + lane);
    if constexpr (W::PAGE_SCALES > 0) {
        using copy = scale_copy<W>;
        const struct cuda_side &side = copy::is_k() ? p.cache.k : p.cache.v;
        int chunk = copy::is_k() ? copy::chunk() : copy::chunk() - copy::K_CHUNKS;
        feed->scales = p.cache.pool + (side.scales + vectors * side.scale_bytes + (uint32_t)chunk * 16);
    }
}

// Written by one lane for all.
DEVICE void tile_put(struct work_tile *to, const struct work_tile &tile)
{
    __syncwarp();
    if (lane_index() == 0)
        *to = tile;
    __syncwarp();
}

// Goes to a tile; false if this warp has no steps of it.
template <class W>
DEVICE bool feed_enter(const struct cuda_attention &p, const struct work_tile &tile, struct feed *feed)
{
    feed->step = first_step<W>(tile, tile.split);
    feed->steps_end = first_step<W>(tile, tile.split + tile.splits);
    if (feed->step >= feed->steps_end)
        return false;
    feed->table = p.batch.tables + tile.table_at;
    feed->first_page = tile.start / PAGE_TOKENS;
    feed->last_page = tile.last / PAGE_TOKENS;
    feed->new_from = tile.last - tile.rows + 1;
    feed_head<W>(p, tile.head, feed);
    feed_pages<W>(feed);
    return true;
}

// Goes to the next tile that has steps for this warp. Behind the last one the next kernel may launch (programmatic
// dependent launch): before, its waiting CTAs would take room that CTAs of this kernel need.
template <class W> DEVICE void feed_next(const struct cuda_attention &p, const struct work &work, struct feed *feed)
{
    struct work_tile tile;
    while (scheduler_tile(p, work, feed->scheduler, ++feed->number, &tile))
        if (feed_enter<W>(p, tile, feed)) {
            scheduler_claim(work, feed->scheduler, feed->number + 1);
            tile_put(feed->tile, tile);
            return;
        }
    feed->over = true;
    launch_next();
}

// `from` is the lane's first 16 bytes. If rows divide a warp's 512 bytes evenly, later copies of a lane differ from its
// first in other bits of the row, so that their swizzles are independent.
template <int ROW_BYTES> DEVICE void copy_rows(uint32_t to, const uint8_t *from)
{
    constexpr int ROW = ROW_BYTES / 16;
    int lane = lane_index(), place = chunk_place<ROW_BYTES>(lane / ROW, lane % ROW);
#pragma unroll
    for (int i = 0; i < ROW_BYTES / WARP; i++) {
        int chunk = i * WARP + lane;
        int at = WARP % ROW == 0 ? (place ^ chunk_swizzle<ROW_BYTES>(i * WARP / ROW, 0)) + i * WARP
                                 : chunk_place<ROW_BYTES>(chunk / ROW, chunk % ROW);
        copy_chunk(to + at * 16, from + i * WARP * 16);
    }
}

// Starts the copies of the next step, and reads the page table for the one after it.
template <class W>
DEVICE void feed_step(const struct cuda_attention &p, const struct work &work, struct feed *feed, uint32_t stage)
{
    if (!feed->over) {
#pragma unroll
        for (int i = 0; i < W::PAGES; i++) {
            uint32_t to = stage + i * W::PAGE_BYTES;
            copy_rows<W::K_ROW>(to, in_page(p, feed->pages[i], feed->k));
            copy_rows<W::V_ROW>(to + PAGE_TOKENS * W::K_ROW, in_page(p, feed->pages[i], feed->v));
        }
        if constexpr (W::PAGE_SCALES > 0) {
            using copy = scale_copy<W>;
            bool always = W::K != FORM_E4M3 && W::V != FORM_E4M3;
            bool has = always || (copy::is_k() ? p.cache.k.scale_bytes : p.cache.v.scale_bytes) > 0;
            int32_t page = W::PAGES == 2 && copy::page() ? feed->pages[1] : feed->pages[0];
            if (has && lane_index() < W::PAGES * copy::CHUNKS)
                copy_chunk(stage + W::PAGES * W::PAGE_BYTES + (uint32_t)lane_index() * 16,
                           in_page(p, page, feed->scales));
        }
        feed->step++;
        if (feed->step < feed->steps_end)
            feed_pages<W>(feed);
        else
            feed_next<W>(p, work, feed);
    }
    copies_commit(); // an empty group, too: groups are counted
}

#endif
