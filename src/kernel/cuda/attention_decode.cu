// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_decode.cu: attention of sequences with few rows over a paged cache, on tensor cores. Memory is
// the limit: each byte is read once, by 16-byte copies that are always several steps ahead, and dequantised in
// registers for all (row, head) pairs that share it.
//   attention_work.cuh    what there is to do
//   attention_schedule.cuh    who does it
//   attention_feed.cuh    pages on their way
//   dequantise.cuh            what their bytes mean
//   attention_step.cuh    scores, shares and sums
//   attention_sink.cuh    first pages that are kept in 16 bit
//   attention_result.cuh  adding up
//   attention_plain.cuh   all that, without tensor cores, for the rest
#include "kernel/cuda/attention_plain.cuh"
#include "kernel/cuda/attention_result.cuh"
#include "kernel/cuda/attention_sink.cuh"

template <class W>
DEVICE void piece_query(const struct cuda_attention &p, const struct piece &piece, struct query<W::D> *query)
{
    struct column column = column_of(p, piece, lane_index() / 4);
    size_t at = (size_t)(piece.first + column.row) * (size_t)p.heads + (size_t)column.head;
    query_load<W>(has_query(p, piece, column) ? p.q + at * W::D : NULL, query);
}

// Until the kernels before are done; from then on the block may ask for further pieces.
DEVICE void feed_wait(const struct work &work, struct deal *deal)
{
    wait_for_previous();
    deal_ask(work, deal, 1);
}

// Asks for the first steps. Tokens of earlier steps are there already; those of this one, and the queries, once the
// kernels before are done: then it returns.
template <class W>
DEVICE void feed_begin(const struct cuda_attention &p, const struct work &work, const struct piece *first,
                       struct feed *feed, uint32_t ring)
{
    bool waited = false;
    if (!first || !feed_enter<W>(p, *first, feed)) // then pieces are dealt out in turn
        feed_next<W>(p, work, feed);
#pragma unroll 1
    for (int i = 0; i < W::STAGES - 1; i++) {
        bool is_last = work.is_dealt && feed->step + 1 == feed->steps_end;
        if (!waited && (is_last || (feed->step + 1) * W::TOKENS > feed->new_from)) {
            feed_wait(work, feed->deal);
            waited = true;
        }
        feed_step<W>(p, work, feed, ring + i * W::STAGE_BYTES);
    }
    if (!waited)
        feed_wait(work, feed->deal);
}

// From one place in shared memory to another, by all lanes.
DEVICE void piece_copy(struct piece *to, const struct piece *from)
{
    constexpr int WORDS = sizeof *to / sizeof(uint32_t);
    static_assert(WORDS <= WARP && sizeof *to % sizeof(uint32_t) == 0, "a word for each lane");
    __syncwarp();
    if (lane_index() < WORDS)
        ((uint32_t *)to)[lane_index()] = ((const uint32_t *)from)[lane_index()];
    __syncwarp();
}

// The block's piece `number`: most often the feed is there already. False behind the last one.
DEVICE bool piece_take(const struct cuda_attention &p, const struct work &work, int number, const struct feed &feed,
                       struct piece *to)
{
    if (!feed.over && feed.number == number) {
        piece_copy(to, feed.piece);
        return true;
    }
    struct piece piece;
    bool more = deal_piece(p, work, feed.deal, number, &piece);
    piece_put(to, piece);
    return more;
}

// The steps of one part.
template <class W>
DEVICE void attend_part(const struct cuda_attention &p, const struct work &work, const struct piece &piece, int part,
                        struct ring *ring, struct feed *feed, const struct query<W::D> &query,
                        struct running<W::D> *state)
{
    const struct seen_by_all seen = seen_by_all<W>(p, piece);
    float score_scale = p.scale * LOG2_E * unit_of(p.cache.k, W::D);
    for (int step = first_step<W>(piece, part), end = first_step<W>(piece, part + 1); step < end; step++) {
        copies_wait<W::STAGES - 2>();
        __syncwarp();
        feed_step<W>(p, work, feed, ring->address + ring->free_stage * W::STAGE_BYTES);
        attend_step<W>(p, ring->bytes + ring->stage * W::STAGE_BYTES, step, piece, seen, score_scale, query, state);
        ring->free_stage = ring->stage;
        ring->stage = ring->stage + 1 == W::STAGES ? 0 : ring->stage + 1;
    }
    unlift<W>(state);
}

// This warp's parts of a piece, in turn; where columns are narrow, each other one has the second half of them. Of four,
// the sum of the first two is kept.
template <class W>
DEVICE void attend_parts(const struct cuda_attention &p, const struct work &work, const struct piece &piece,
                         struct node<W::D> *kept, struct ring *ring, struct feed *feed, const struct query<W::D> &query,
                         struct running<W::D> *state)
{
    int half = piece.narrow ? lane_index() % 4 / 2 : 0;
    float maximum[2] = { SCORE_NONE, SCORE_NONE };
#pragma unroll 1
    for (int i = 0; i < piece.parts; i++) {
        if (W::PARTS_MOST > 2 && i == 2) {
            state->maximum[0] = maximum[0], state->maximum[1] = maximum[1];
            node_make(*state, kept);
            running_clear(piece, state);
            maximum[0] = maximum[1] = SCORE_NONE;
        } else if (i > 0)
            state->maximum[0] = state->maximum[1] = half == i % 2 ? SCORE_NONE : SCORE_ALL;
        attend_part<W>(p, work, piece, piece.part + i, ring, feed, query, state);
        if (half == i % 2)
            maximum[0] = state->maximum[0], maximum[1] = state->maximum[1];
    }
    state->maximum[0] = maximum[0], state->maximum[1] = maximum[1];
}

// Whether a warp begins with first pages that are kept in 16 bit: they are, beside fewer bits, if those are not
// rotated.
template <class W> DEVICE bool begins_with_sink(const struct cuda_attention &p, const struct piece &piece)
{
    constexpr bool HAS = !(form<W::K>::WIDE && form<W::V>::WIDE) && W::K != FORM_INT4 && W::V != FORM_INT4;
    return HAS && piece.part == 0 && first_seen(p, piece.last - piece.rows + 1) < sink_tokens(p);
}

template <class W> DEVICE void attend(const struct cuda_attention &p)
{
    static_assert(W::STAGES <= 3, "DEAL_KNOWN");
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ struct deal deal;
    // Each warp's own: its piece, the next one, and its feed's. They are seldom asked for, and registers are scarce.
    __shared__ struct piece pieces[W::WARPS][3];
    deal_open(&deal);
    const struct work work = work_list(p, (struct sequence_work *)(shared + W::SHARED_BYTES));
    struct piece &piece = pieces[warp_index()][0], &next = pieces[warp_index()][1];
    struct feed feed = { .deal = &deal, .piece = &pieces[warp_index()][2], .number = -1 };
    bool more = piece_take(p, work, 0, feed, &piece);
    feed.number = 0;
    if (more && begins_with_sink<W>(p, piece))
        sink_ask(p, piece);
    struct ring ring = { shared + warp_index() * W::RING_BYTES };
    ring.address = shared_address(ring.bytes);
    ring.free_stage = W::STAGES - 1;
    feed_begin<W>(p, work, more ? &piece : NULL, &feed, ring.address);

    struct query<W::D> query;
    if (more)
        piece_query<W>(p, piece, &query);
    for (int n = 1; more; n++) {
        struct running<W::D> state;
        struct node<W::D> kept;
        running_clear(piece, &state);
        if (begins_with_sink<W>(p, piece))
            attend_sink<W::D>(p, piece, query.pairs, &state);
        query_convert<W>(&query);
        attend_parts<W>(p, work, piece, &kept, &ring, &feed, query, &state);
        more = piece_take(p, work, n, feed, &next);
        if (more && begins_with_sink<W>(p, next))
            sink_ask(p, next);
        if (more)
            piece_query<W>(p, next, &query); // on its way while results are added up
        piece_end<W>(p, piece, shared, ring.free_stage, state, kept);
        piece_copy(&piece, &next);
    }
}

#ifdef __CUDA_ARCH__
#define ARCHITECTURE (__CUDA_ARCH__ / 10)
#else
#define ARCHITECTURE 0 // nothing is compiled for the host
#endif
#define X(name, K, V, DIM, ...) DECODE(attention_decode_##name##_##DIM, FORM_##K, FORM_##V, DIM, __VA_ARGS__)
#define DECODE(...) DECODE_KERNEL(__VA_ARGS__)
#define DECODE_KERNEL(name, K, V, DIM, WARPS, STAGES, PAGES, BLOCKS, PARTS, EACH)                                     \
    extern "C" __global__ void __launch_bounds__(DECODE_WARPS(WARPS, BLOCKS, ARCHITECTURE) * WARP, BLOCKS)            \
        name(const __grid_constant__ struct cuda_attention p)                                                         \
    {                                                                                                                 \
        attend<walk<K, V, DIM, DECODE_WARPS(WARPS, BLOCKS, ARCHITECTURE), DECODE_STAGES(STAGES, ARCHITECTURE), PAGES, \
                    EACH>>(p);                                                                                        \
    }
DECODE_KERNELS(X)
DECODE_SMALL_KERNELS(X)
