// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_wgmma.cu: prefill attention for Hopper (sm_90a), as FlashAttention-3: warp-specialised,
// with ping-pong scheduling. Two consumer warpgroups have 64 rows each; one producer warpgroup loads the tiles of K and
// another those of V, dequantised, two tiles ahead. A consumer computes Q K of one tile while P V of the tile before is
// in flight, and the two alternate: while one computes its softmax, the tensor cores work for the other.
#include "kernel/cuda/attention_prefill_batch.cuh"
#include "kernel/cuda/attention_prefill_sink.cuh"
#include "kernel/cuda/attention_prefill_wgmma.cuh"

enum { GROUP_THREADS = 128, GROUP_WARPS = 4, GROUP_ROWS = 64 };
enum { CONSUMERS = 2, PRODUCER_K = CONSUMERS, PRODUCER_V, GROUPS }; // warpgroups: consumers first
enum { BLOCK_ROWS = PREFILL_WGMMA_ROWS, STAGES = PREFILL_WGMMA_STAGES };
static_assert(BLOCK_ROWS == CONSUMERS * GROUP_ROWS && PREFILL_WGMMA_THREADS == GROUPS * GROUP_THREADS,
              "one role for each warpgroup");

// Named barriers: the order of the consumers' products, and the threads within a warpgroup. 0 is __syncthreads.
enum { ORDER = 1, WITHIN = ORDER + CONSUMERS };

// Registers of a thread (setmaxnreg); there are 512 for one thread of each warpgroup together.
template <int D> constexpr int CONSUMER_REGISTERS = D > 128 ? 216 : 200;
template <int D> constexpr int PRODUCER_REGISTERS = 256 - CONSUMER_REGISTERS<D>;

// A ring of tiles of K or of V.
struct ring {
    uint32_t tiles, tile_bytes, full, empty; // barriers: one per stage
};

DEVICE uint32_t ring_tile(const struct ring &ring, int n) { return ring.tiles + n % STAGES * ring.tile_bytes; }
DEVICE uint32_t stage_barrier(uint32_t barriers, int n) { return barriers + n % STAGES * BARRIER_BYTES; }
DEVICE int stage_parity(int n) { return n / STAGES & 1; }

DEVICE void wait_empty(const struct ring &ring, int n)
{
    barrier_wait(stage_barrier(ring.empty, n), stage_parity(n) ^ 1);
}

DEVICE void wait_full(const struct ring &ring, int n) { barrier_wait(stage_barrier(ring.full, n), stage_parity(n)); }

// One arrival per warp, once all its lanes are done.
DEVICE void arrive(uint32_t barriers, int n)
{
    __syncwarp();
    if (lane_index() == 0)
        barrier_arrive(stage_barrier(barriers, n));
}

// The tiles that a block goes over, from the last to the first.
struct walk {
    int first, count; // position of the last tile's first token
    int complete;     // tiles that need no sink pages: all, or all but the one that begins the sequence
};

template <int TOKENS> DEVICE struct walk walk_of(const struct cuda_attention &p, const struct prefill_block &block)
{
    int last = block.last_seen / TOKENS, end = block.first_seen / TOKENS, count = last - end + 1;
    return { last * TOKENS, count, count - (block.first_seen < p.sink_pages * KV_PAGE_TOKENS) };
}

// ---- producers ----

template <int D, int TOKENS>
DEVICE void produce_copies(const struct source &source, const struct walk &walk, const struct ring &ring,
                           unsigned thread)
{
    uint32_t pages = pages_from(source, walk.first, TOKENS);
    for (int n = 0; n < walk.count; n++) {
        int first = walk.first - n * TOKENS;
        uint32_t next = pages_from(source, first - TOKENS, TOKENS);
        wait_empty(ring, n);
        copy_tile<D, GROUP_THREADS, TOKENS>(source, pages, first, thread, ring_tile(ring, n));
        copies_wait_all();
        fence_for_products();
        if (n < walk.complete)
            arrive(ring.full, n);
        pages = next;
    }
}

// Formats other than bfloat16 are copied BATCHES - 1 batches ahead of dequantising. Copies beyond the last tile are
// zeros.
template <int FORM, int D, int TOKENS, int ROOM, int BATCHES>
DEVICE void load_dequantised(const struct source &source, const struct walk &walk, const struct ring &ring,
                             uint32_t room, unsigned thread)
{
    constexpr unsigned PASSES = batch_of<FORM, ROOM>::PASSES, BYTES = ROOM * GROUP_THREADS;
    constexpr unsigned EACH = TOKENS / tile_slice<D, GROUP_THREADS>::ROWS / PASSES; // batches of a tile
    tile_slice<D, GROUP_THREADS> own(thread);
    int first = walk.first;
    unsigned batch = 0;
    uint32_t pages = pages_from(source, first, TOKENS), next = pages_from(source, first - TOKENS, TOKENS);
    uint32_t copied = room, read = room;
    auto step = [&](uint32_t at) { return at + BYTES < room + BATCHES * BYTES ? at + BYTES : room; };
    auto copy = [&]() {
        batch_copy<FORM, ROOM>(source, pages, first, batch, own, copied, thread);
        copies_commit();
        copied = step(copied);
        if (++batch == EACH) {
            batch = 0;
            first -= TOKENS;
            pages = next;
            next = pages_from(source, first - TOKENS, TOKENS);
        }
    };
    for (int i = 0; i < BATCHES - 1; i++)
        copy();
    for (int n = 0; n < walk.count; n++) {
        wait_empty(ring, n);
#pragma unroll 1
        for (unsigned b = 0; b < EACH; b++, read = step(read)) {
            unit<FORM> units[PASSES];
            copy();
            copies_wait<BATCHES - 1>();
            batch_read<FORM, ROOM>(source, b, own, read, thread, units);
#pragma unroll
            for (unsigned i = 0; i < PASSES; i++)
                store_unit(ring_tile(ring, n), TOKENS, b * PASSES + i, own, units[i]);
        }
        fence_for_products();
        if (n < walk.complete)
            arrive(ring.full, n);
    }
}

template <int D, int TOKENS, int ROOM, int BATCHES>
DEVICE void produce(const struct source &source, const struct walk &walk, const struct ring &ring, uint32_t room,
                    unsigned thread)
{
    if (source.dtype == DTYPE_BF16)
        return produce_copies<D, TOKENS>(source, walk, ring, thread);
    with_form(source.dtype, [&](auto form) {
        load_dequantised<decltype(form)::FORM_VALUE, D, TOKENS, ROOM, BATCHES>(source, walk, ring, room, thread);
    });
}

// Writes the sink pages into the last tile, for which no producer has arrived yet.
template <int D, int TOKENS>
DEVICE void produce_sink(const struct sink &sink, const struct walk &walk, const struct ring &ring, int group,
                         unsigned thread)
{
    static_assert(KV_SINK_PAGES_MAX * KV_PAGE_TOKENS <= TOKENS, "they are in one tile");
    int n = walk.count - 1;
    group_sync(WITHIN + group, GROUP_THREADS);
    write_sink<D, GROUP_THREADS, TOKENS>(sink, walk.first - n * TOKENS, thread, ring_tile(ring, n));
    fence_for_products();
    arrive(ring.full, n);
}

// ---- consumers ----

template <int D, int N> DEVICE void multiply_keys(uint32_t queries, uint32_t keys, float s[N][4])
{
    constexpr int TOKENS = N * 8;
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t at = step % 4 * 32;
        product_of_tiles<N>(s, operand(queries + step / 4 * BLOCK_ROWS * PANEL_ROW_BYTES + at, 16),
                            operand(keys + step / 4 * TOKENS * PANEL_ROW_BYTES + at, 16), step > 0);
    }
    products_commit();
}

// Results of more than 128 channels are separate products for each 128.
template <int D, int N> DEVICE void multiply_values(const uint32_t probs[N / 2][4], uint32_t values, float o[D / 8][4])
{
    constexpr uint32_t PANEL_BYTES = N * 8 * PANEL_ROW_BYTES;
    constexpr int WIDE = D < 128 ? D : 128;
#pragma unroll
    for (int step = 0; step < N / 2; step++)
#pragma unroll
        for (int c = 0; c < D; c += WIDE)
            product_with_tile<WIDE / 8>(o + c / 8, probs[step],
                                        operand(values + c / PANEL_VALUES * PANEL_BYTES + step * 2048, PANEL_BYTES));
    products_commit();
}

template <int D, int TOKENS>
DEVICE void consume(const struct cuda_attention &p, const struct prefill_block &block, const struct walk &walk,
                    uint32_t queries, const struct ring &k, const struct ring &v, int group)
{
    constexpr int N = TOKENS / 8;
    struct score_rule rule = score_rule_of(p);
    int row = group * GROUP_ROWS + warp_index() % GROUP_WARPS * 16;
    struct softmax_rows rows;
    softmax_begin(p, block, rule, row, rows);
    load_queries<D>(p, block, queries, BLOCK_ROWS, row, 16);
    fence_for_products();
    group_sync(WITHIN + group, GROUP_THREADS);

    uint32_t own_queries = queries + group * GROUP_ROWS * PANEL_ROW_BYTES, probs[N / 2][4];
    struct seen_by_all seen = seen_by_rows(block, p.window, group * GROUP_ROWS, GROUP_ROWS);
    float o[D / 8][4] = {}, s[N][4], keep[2];

    wait_full(k, 0);
    products_begin();
    multiply_keys<D, N>(own_queries, ring_tile(k, 0), s);
    products_wait<0>();
    products_hold<N>(s);
    arrive(k.empty, 0);
    softmax_tile<N>(rule, seen, rows, walk.first, s, keep);
    pack_probs<N>(s, probs);
    if (group > 0 && walk.count > 1)
        group_arrive(ORDER, CONSUMERS * GROUP_THREADS);
    if (walk.count > 1)
        wait_full(k, 1);
    for (int n = 1; n < walk.count; n++) {
        group_sync(ORDER + group, CONSUMERS * GROUP_THREADS);
        products_begin();
        multiply_keys<D, N>(own_queries, ring_tile(k, n), s);
        wait_full(v, n - 1);
        products_begin();
        multiply_values<D, N>(probs, ring_tile(v, n - 1), o);
        if (group == 0 || n + 1 < walk.count)
            group_arrive(ORDER + (group ^ 1), CONSUMERS * GROUP_THREADS);
        products_wait<1>();
        products_hold<N>(s);
        arrive(k.empty, n);
        softmax_tile<N>(rule, seen, rows, walk.first - n * TOKENS, s, keep);
        products_hold<N>(s);
        if (n + 1 < walk.count)
            wait_full(k, n + 1); // here: a wait that can branch keeps the compiler from hoisting the next one
        products_wait<0>();
        products_hold<D / 8>(o);
        arrive(v.empty, n - 1);
        scale_results<D / 8>(o, keep);
        pack_probs<N>(s, probs);
    }
    wait_full(v, walk.count - 1);
    products_begin();
    multiply_values<D, N>(probs, ring_tile(v, walk.count - 1), o);
    products_wait<0>();
    products_hold<D / 8>(o);
    softmax_end(rows);
    group_sync(WITHIN + group, GROUP_THREADS); // the queries have been read: their memory takes the results
    store_results<D>(p, block, queries, BLOCK_ROWS, row, o, rows.sum);
}

template <int D, int TOKENS, int ROOM, int BATCHES> DEVICE void prefill(const struct cuda_attention &p)
{
    constexpr uint32_t TILE_BYTES = TOKENS * D * 2, QUERIES_BYTES = BLOCK_ROWS * D * 2;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint32_t queries = shared_address(shared), tiles = queries + QUERIES_BYTES;
    uint32_t batches = queries + PREFILL_TILES_BYTES(D, BLOCK_ROWS, TOKENS, STAGES);
    uint32_t barriers = batches + BATCHES * ROOM * 2 * GROUP_THREADS;
    constexpr uint32_t ALL_BYTES = STAGES * BARRIER_BYTES;
    struct ring k = { tiles, TILE_BYTES, barriers, barriers + ALL_BYTES };
    struct ring v = { tiles + STAGES * TILE_BYTES, TILE_BYTES, barriers + 2 * ALL_BYTES, barriers + 3 * ALL_BYTES };
    if (threadIdx.x == 0)
        for (int n = 0; n < STAGES; n++) {
            barrier_init(stage_barrier(k.full, n), GROUP_WARPS);
            barrier_init(stage_barrier(v.full, n), GROUP_WARPS);
            barrier_init(stage_barrier(k.empty, n), CONSUMERS * GROUP_WARPS);
            barrier_init(stage_barrier(v.empty, n), CONSUMERS * GROUP_WARPS);
        }
    kernel_begin();
    struct prefill_block block = { .kv_head = (int)blockIdx.x };
    if (!find_block(p, (int)blockIdx.y, BLOCK_ROWS, block))
        return;
    struct walk walk = walk_of<TOKENS>(p, block);
    __syncthreads();
    int group = __shfl_sync(WARP_ALL, warp_index() / GROUP_WARPS,
                            0); // shows the compiler that it is the same in all lanes
    if (group >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS<D>));
        bool is_k = group == PRODUCER_K;
        uint32_t room = batches + (is_k ? 0 : BATCHES * ROOM * GROUP_THREADS);
        produce<D, TOKENS, ROOM, BATCHES>(source_of(p, block, is_k), walk, is_k ? k : v, room,
                                          threadIdx.x % GROUP_THREADS);
        if (walk.complete < walk.count) {
            find_block(p, (int)blockIdx.y, BLOCK_ROWS, block); // again, since registers are scarce until here
            produce_sink<D, TOKENS>(sink_of(p, block, is_k), walk, is_k ? k : v, group, threadIdx.x % GROUP_THREADS);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS<D>));
        consume<D, TOKENS>(p, block, walk, queries, k, v, group);
    }
}

#define X(d, tokens, room, batches)                                                  \
    extern "C" __global__ void __launch_bounds__(PREFILL_WGMMA_THREADS, 1)           \
        attention_prefill_wgmma_##d(const __grid_constant__ struct cuda_attention p) \
    {                                                                                \
        prefill<d, tokens, room, batches>(p);                                        \
    }
PREFILL_WGMMA_KERNELS(X)
