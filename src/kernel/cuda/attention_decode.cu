// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_decode.cu: attention of sequences with few rows over a paged cache, on tensor cores. Memory is
// the limit: each byte is read once, by 16-byte copies that are always several steps ahead, and unpacked in registers
// for all (row, head) pairs that share it.
//   attention_work.cuh    what there is to do
//   attention_feed.cuh    pages on their way
//   unpack.cuh            what their bytes mean
//   attention_step.cuh    scores, shares and sums
//   attention_result.cuh  adding up
//   attention_plain.cuh   all that, without tensor cores, for the rest
#include "kernel/cuda/attention_plain.cuh"
#include "kernel/cuda/attention_result.cuh"

template <class W>
DEVICE void piece_query(const struct cuda_attention &p, const struct piece &piece, uint32_t query[W::D / 8])
{
    struct column column = column_of(p, piece, lane_index() / 4);
    size_t at = (size_t)(piece.first + column.row) * (size_t)p.heads + (size_t)column.head;
    query_load<W>(column.row < piece.rows ? p.q + at * W::D : NULL, query);
}

// Asks for the first steps. Tokens of earlier steps are there already; those of this one, and the queries, once the
// kernels before are done: then it returns.
template <class W>
DEVICE void feed_begin(const struct cuda_attention &p, const struct sequence_work *list, int sequences,
                       struct feed *feed, uint32_t ring)
{
    bool waited = false;
    feed->index = (int)blockIdx.x;
    feed_open<W>(p, list, sequences, feed);
#pragma unroll 1
    for (int i = 0; i < W::STAGES - 1; i++) {
        if (!waited && (feed->step + 1) * W::TOKENS > feed->new_from) {
            wait_for_previous();
            waited = true;
        }
        feed_step<W>(p, list, sequences, feed, ring + i * W::STAGE_BYTES);
    }
    if (!waited)
        wait_for_previous();
}

template <class W> DEVICE void attend(const struct cuda_attention &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    uint8_t *ring = shared + warp_index() * W::RING_BYTES;
    struct sequence_work *list = (struct sequence_work *)(shared + W::SHARED_BYTES);
    uint32_t ring_address = (uint32_t)__cvta_generic_to_shared(ring);
    int sequences = p.batch.counts[CUDA_SEQUENCES];
    if (sequences == 0)
        return wait_for_previous();
    work_list(p, list, sequences);
    struct piece piece;
    bool more = work_piece(p, list, sequences, (int)blockIdx.x, &piece);
    struct feed feed = { 0 };
    feed_begin<W>(p, list, sequences, &feed, ring_address);

    float score_scale = p.scale * LOG2_E * unit_of(p.cache.k, W::D);
    int stage = 0, free_stage = W::STAGES - 1;
    uint32_t query[W::D / 8];
    if (more)
        piece_query<W>(p, piece, query);
    for (int n = 0; more; n++) {
        struct running<W::D> state = { { SCORE_NONE, SCORE_NONE } };
        query_convert<W>(query);
        for (int step = first_step<W>(piece); step <= last_step<W>(piece); step += W::WARPS) {
            copies_wait<W::STAGES - 2>();
            __syncwarp();
            feed_step<W>(p, list, sequences, &feed, ring_address + free_stage * W::STAGE_BYTES);
            attend_step<W>(p, ring + stage * W::STAGE_BYTES, step, &piece, score_scale, query, &state);
            free_stage = stage;
            stage = stage + 1 == W::STAGES ? 0 : stage + 1;
        }
        struct piece next;
        more = work_piece(p, list, sequences, (int)blockIdx.x + (n + 1) * (int)gridDim.x, &next);
        if (more)
            piece_query<W>(p, next, query); // on its way while results are added up
        piece_end<W>(p, piece, shared, free_stage, &state);
        piece = next;
    }
}

#ifdef __CUDA_ARCH__
#define ARCHITECTURE (__CUDA_ARCH__ / 10)
#else
#define ARCHITECTURE 0 // nothing is compiled for the host
#endif
#define X(name, K, V, DIM, ...) DECODE(attention_decode_##name##_##DIM, FORM_##K, FORM_##V, DIM, __VA_ARGS__)
#define DECODE(...) DECODE_KERNEL(__VA_ARGS__)
#define DECODE_KERNEL(name, K, V, DIM, WARPS, STAGES, PAGES, BLOCKS, PART)             \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP, BLOCKS)                  \
        name(const __grid_constant__ struct cuda_attention p)                          \
    {                                                                                  \
        attend<walk<K, V, DIM, WARPS, DECODE_STAGES(STAGES, ARCHITECTURE), PAGES>>(p); \
    }
DECODE_KERNELS(X)
