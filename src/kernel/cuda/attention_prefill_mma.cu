// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_mma.cu: prefill attention (FlashAttention-2) for every architecture from sm_80 on, by
// mma.m16n8k16. A block has a tile of queries and goes over the tiles of K and V that they see, from the last to the
// first; it loads one of the two while it computes with the other.
#include "kernel/cuda/attention_prefill_sink.cuh"
#include "kernel/cuda/attention_prefill_shapes.h"

DEVICE void load_matrices(uint32_t address, uint32_t out[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

DEVICE void load_matrices_transposed(uint32_t address, uint32_t out[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

DEVICE void multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Scores of BLOCKS times sixteen rows, `row` being the first, with the tile's N * 8 tokens.
template <int D, int BLOCKS, int N>
DEVICE void multiply_keys(uint32_t queries, int queries_rows, int row, uint32_t keys, float s[BLOCKS][N][4])
{
    int lane = lane_index();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < N; j++)
            s[b][j][0] = s[b][j][1] = s[b][j][2] = s[b][j][3] = 0;
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t a[BLOCKS][4];
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            load_matrices(queries + chunk_at(queries_rows, row + b * 16 + lane % 16, step * 2 + lane / 16), a[b]);
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            uint32_t k[4];
            load_matrices(keys + chunk_at(N * 8, j * 8 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2), k);
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                multiply(s[b][j], a[b], k[0], k[1]);
                multiply(s[b][j + 1], a[b], k[2], k[3]);
            }
        }
    }
}

template <int D, int BLOCKS, int N>
DEVICE void multiply_values(const uint32_t probs[BLOCKS][N / 2][4], uint32_t values, float o[BLOCKS][D / 8][4])
{
    int lane = lane_index();
#pragma unroll
    for (int step = 0; step < N / 2; step++)
#pragma unroll
        for (int j = 0; j < D / 8; j += 2) {
            uint32_t v[4];
            load_matrices_transposed(values + chunk_at(N * 8, step * 16 + lane % 16, j + lane / 16), v);
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                multiply(o[b][j], probs[b][step], v[0], v[1]);
                multiply(o[b][j + 1], probs[b][step], v[2], v[3]);
            }
        }
}

template <int FORM, int D, int TOKENS, int THREADS>
DEVICE void dequantise_tile(const struct source &source, uint32_t pages, int first, uint32_t tile)
{
    constexpr int PASSES = TOKENS / tile_slice<D, THREADS>::ROWS, COUNT = PASSES < 4 ? PASSES : 4;
    tile_slice<D, THREADS> own(threadIdx.x);
    for (int pass = 0; pass < PASSES; pass += COUNT) {
        unit<FORM> units[COUNT];
        load_units<D, THREADS, COUNT>(source, pages, first, pass, own, units);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            store_unit(tile, TOKENS, pass + i, own, units[i]);
    }
}

template <int D, int TOKENS, int THREADS>
DEVICE void fetch_tile(const struct source &source, const struct sink &sink, int first, uint32_t tile)
{
    uint32_t pages = pages_from(source, first, TOKENS);
    if (source.dtype == DTYPE_BF16)
        copy_tile<D, THREADS, TOKENS>(source, pages, first, threadIdx.x, tile);
    else
        with_form(source.dtype, [&](auto form) {
            dequantise_tile<decltype(form)::FORM_VALUE, D, TOKENS, THREADS>(source, pages, first, tile);
        });
    if (first < sink.tokens) {
        copies_wait_all();
        __syncthreads();
        write_sink<D, THREADS, TOKENS>(sink, first, threadIdx.x, tile);
    }
}

// WARPS warps with BLOCKS times sixteen rows each.
template <int D, int WARPS, int BLOCKS, int TOKENS> DEVICE void prefill(const struct cuda_attention &p)
{
    constexpr int THREADS = WARPS * WARP, ROWS = WARPS * BLOCKS * 16, N = TOKENS / 8;
    extern __shared__ __align__(1024) uint8_t tiles[];
    kernel_begin();
    struct prefill_block block = { .kv_head = (int)blockIdx.x };
    if (!find_block(p, (int)blockIdx.y, ROWS, block))
        return;
    uint32_t queries = shared_address(tiles), keys = queries + ROWS * D * 2, values = keys + TOKENS * D * 2;
    struct source k = source_of(p, block, true), v = source_of(p, block, false);
    struct sink k_sink = sink_of(p, block, true), v_sink = sink_of(p, block, false);
    struct score_rule rule = score_rule_of(p);
    struct seen_by_all seen = seen_by_rows(block, p.window, 0, ROWS);
    int row = warp_index() * BLOCKS * 16;
    struct softmax_rows rows[BLOCKS];
    float o[BLOCKS][D / 8][4] = {};
    for (int b = 0; b < BLOCKS; b++)
        softmax_begin(p, block, rule, row + b * 16, rows[b]);
    load_queries<D>(p, block, queries, ROWS, row, BLOCKS * 16);

    int first = block.last_seen / TOKENS * TOKENS, end = block.first_seen / TOKENS * TOKENS;
    fetch_tile<D, TOKENS, THREADS>(k, k_sink, first, keys);
    for (; first >= end; first -= TOKENS) {
        copies_wait_all();
        __syncthreads(); // K is here, and V is no longer needed
        fetch_tile<D, TOKENS, THREADS>(v, v_sink, first, values);
        float s[BLOCKS][N][4], keep[2];
        multiply_keys<D, BLOCKS, N>(queries, ROWS, row, keys, s);
        copies_wait_all();
        __syncthreads(); // V is here, and K is no longer needed
        if (first > end)
            fetch_tile<D, TOKENS, THREADS>(k, k_sink, first - TOKENS, keys);
        uint32_t probs[BLOCKS][N / 2][4];
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            softmax_tile<N>(rule, seen, rows[b], first, s[b], keep);
            scale_results<D / 8>(o[b], keep);
            pack_probs<N>(s[b], probs[b]);
        }
        multiply_values<D, BLOCKS, N>(probs, values, o);
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        softmax_end(rows[b]);
        store_results<D>(p, block, queries, ROWS, row + b * 16, o[b], rows[b].sum);
    }
}

#define X(d, warps, blocks, tokens)                                                \
    extern "C" __global__ void __launch_bounds__((warps) * WARP)                   \
        attention_prefill_mma_##d(const __grid_constant__ struct cuda_attention p) \
    {                                                                              \
        prefill<d, warps, blocks, tokens>(p);                                      \
    }
PREFILL_MMA_KERNELS(X)
