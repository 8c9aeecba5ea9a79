// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_sink.cuh: the sink pages of prefill attention: a sequence's first pages, which are kept
// in 16 bits. A tile that begins among them is loaded like all others, with zeros in their place; their values are then
// written over these, in the order and with the factor that dequantising gives the rest of the cache. The rest is never
// in a rotated format.
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_SINK_CUH
#define KERNEL_CUDA_ATTENTION_PREFILL_SINK_CUH

#include "kernel/cuda/attention_prefill_fetch.cuh"

struct sink {
    const uint8_t *data; // of page 0
    uint32_t page_bytes, data_bytes;
    int dtype, dim, tokens; // tokens 0: there is none
    int first_seen, last_seen;
    const int32_t *pages;
    int form; // dtype of the rest of the cache
    float unfold;
};

DEVICE struct sink sink_of(const struct cuda_attention &p, const struct prefill_block &block, bool is_k)
{
    const struct cuda_side &side = is_k ? p.sink.k : p.sink.v, &rest = is_k ? p.cache.k : p.cache.v;
    int dim = is_k ? p.cache.k_dim : p.cache.v_dim;
    return { p.sink.pool + side.data + (size_t)block.kv_head * KV_PAGE_TOKENS * side.data_bytes,
             (uint32_t)p.sink.page_bytes,
             side.data_bytes,
             side.dtype,
             dim,
             p.sink_pages * KV_PAGE_TOKENS,
             block.first_seen,
             block.last_seen,
             block.sink_pages,
             rest.dtype,
             1 / fold_of(rest, dim) };
}

DEVICE void sink_values(int dtype, uint4 words, float x[CHUNK_VALUES])
{
    if (dtype == DTYPE_BF16)
        return bf16_dequantise(words, x);
    const uint32_t pairs[4] = { words.x, words.y, words.z, words.w };
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm("{ .reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.f32.f16 %0, l;\n cvt.f32.f16 %1, h; }"
            : "=f"(x[2 * i]), "=f"(x[2 * i + 1])
            : "r"(pairs[i]));
}

// Writes the sink tokens that are seen into a tile of TOKENS tokens from `first` on, by THREADS threads.
template <int D, int THREADS, int TOKENS>
DEVICE void write_sink(const struct sink &sink, int first, unsigned thread, uint32_t tile)
{
    constexpr int ROWS = tile_slice<D, THREADS>::ROWS;
    tile_slice<D, THREADS> own(thread);
    uint32_t order = order_of(sink.form);
#pragma unroll 1
    for (int pass = 0; pass < TOKENS / ROWS && first + pass * ROWS < sink.tokens; pass++) {
        int row = pass * ROWS + (int)own.row, token = first + row;
        bool seen = token < sink.tokens && token >= sink.first_seen && token <= sink.last_seen;
        if (!seen || own.unit * UNIT_VALUES >= (unsigned)sink.dim)
            continue;
        const uint8_t *page = sink.data + (uint64_t)__ldg(sink.pages + token / KV_PAGE_TOKENS) * sink.page_bytes;
        const uint4 *at = (const uint4 *)(page + token % KV_PAGE_TOKENS * sink.data_bytes) + own.unit * 2;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float x[CHUNK_VALUES];
            sink_values(sink.dtype, __ldg(at + i), x);
#pragma unroll
            for (int j = 0; j < CHUNK_VALUES; j++)
                x[j] *= sink.unfold;
            uint4 chunk = into_order(
                make_uint4(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7])),
                order);
            store_chunk(tile + chunk_at(TOKENS, row, (int)own.unit * 2 + i), chunk.x, chunk.y, chunk.z, chunk.w);
        }
    }
}

#endif
