// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_fetch.cuh: tiles of K or V of prefill attention, gathered from pages. Tokens that no
// row of the block sees become zeros: pages before the window may have been freed, and slots behind the last token may
// hold anything.
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_FETCH_CUH
#define KERNEL_CUDA_ATTENTION_PREFILL_FETCH_CUH

#include "kernel/cuda/attention_prefill_rows.cuh"

// K or V of a KV head, over all pages.
struct source {
    const uint8_t *data, *scales; // of page 0
    uint32_t page_bytes, data_bytes, scale_bytes;
    int dtype, dim, first_seen, last_seen;
    const int32_t *pages;
};

// Tokens of sink pages, which are kept elsewhere, count as not seen; there may be no others.
DEVICE struct source source_of(const struct cuda_attention &p, const struct prefill_block &block, bool is_k)
{
    enum { NOWHERE = -(1 << 30) };
    const struct cuda_place &cache = p.cache;
    const struct cuda_side &side = is_k ? cache.k : cache.v;
    size_t vectors = (size_t)block.kv_head * KV_PAGE_TOKENS;
    int first = max(block.first_seen, p.sink_pages * KV_PAGE_TOKENS);
    bool any = first <= block.last_seen;
    return { cache.pool + side.data + vectors * side.data_bytes,
             cache.pool + side.scales + vectors * side.scale_bytes,
             (uint32_t)cache.page_bytes,
             side.data_bytes,
             side.scale_bytes,
             side.dtype,
             is_k ? cache.k_dim : cache.v_dim,
             any ? first : NOWHERE,
             any ? block.last_seen : NOWHERE,
             block.pages };
}

// The pages of `tokens` tokens from `first` on, one in each lane.
DEVICE uint32_t pages_from(const struct source &source, int first, int tokens)
{
    int token = first + lane_index() * KV_PAGE_TOKENS;
    bool is_seen = lane_index() * KV_PAGE_TOKENS < tokens && token <= source.last_seen
        && token + KV_PAGE_TOKENS > source.first_seen;
    return is_seen ? (uint32_t)__ldg(source.pages + token / KV_PAGE_TOKENS) : 0;
}

// The offset from page 0 to the page of a tile's row.
DEVICE uint64_t page_at(const struct source &source, uint32_t pages, unsigned row)
{
    return (uint64_t)__shfl_sync(WARP_ALL, pages, (int)(row / KV_PAGE_TOKENS)) * source.page_bytes;
}

DEVICE bool is_seen(const struct source &source, int token)
{
    return (unsigned)(token - source.first_seen) <= (unsigned)(source.last_seen - source.first_seen);
}

// The part of a tile that one of THREADS threads loads, in passes of several rows. Eight neighbouring threads have two
// rows of one panel, whose chunks lie in different banks.
template <int D, int THREADS> struct tile_slice {
    static constexpr int PANELS = D / PANEL_VALUES, ROWS = THREADS / (4 * PANELS); // of a pass
    unsigned unit, row;                                                            // of a vector; of the first pass

    __device__ __forceinline__ tile_slice(unsigned thread)
        : unit(thread % 4 + thread / 8 % PANELS * 4), row(thread / 4 % 2 + thread / 8 / PANELS * 2)
    {
    }

    __device__ __forceinline__ bool is_within(const struct source &source) const
    {
        return unit * UNIT_VALUES < (unsigned)source.dim;
    }
};

// COUNT passes of a tile from pass `pass` on. pages: those of the tile's tokens, which begin at `first`.
template <int D, int THREADS, int COUNT, int FORM>
DEVICE void load_units(const struct source &source, uint32_t pages, int first, unsigned pass,
                       const tile_slice<D, THREADS> &own, unit<FORM> units[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        unsigned row = (pass + i) * tile_slice<D, THREADS>::ROWS + own.row, slot = row % KV_PAGE_TOKENS;
        uint64_t page = page_at(source, pages, row);
        unit_clear(units[i]);
        if (own.is_within(source) && is_seen(source, first + (int)row))
            unit_load<FORM>(units[i], source.data + slot * source.data_bytes + page,
                            source.scales + slot * source.scale_bytes + page, own.unit);
    }
}

template <int D, int THREADS, int FORM>
DEVICE void store_unit(uint32_t tile, int tile_rows, unsigned pass, const tile_slice<D, THREADS> &own,
                       const unit<FORM> &unit)
{
    unsigned row = pass * tile_slice<D, THREADS>::ROWS;
    uint32_t at = tile + chunk_at(tile_rows, own.row, own.unit * 2), x[8];
    at = (at ^ row % 8 * CHUNK_BYTES) + row * PANEL_ROW_BYTES;
    unit_dequantise<FORM>(unit, x);
    store_chunk(at, x[0], x[1], x[2], x[3]);
    store_chunk(at ^ CHUNK_BYTES, x[4], x[5], x[6], x[7]);
}

// Starts the copies of a tile of bfloat16.
template <int D, int THREADS, int TOKENS>
DEVICE void copy_tile(const struct source &source, uint32_t pages, int first, unsigned thread, uint32_t tile)
{
    constexpr unsigned CHUNKS = D / CHUNK_VALUES, ROWS = THREADS / CHUNKS;
    unsigned chunk = thread % CHUNKS, own_row = thread / CHUNKS;
    uint32_t at = tile + chunk_at(TOKENS, own_row, chunk);
    const uint8_t *data = source.data + chunk * CHUNK_BYTES;
#pragma unroll 8
    for (unsigned pass = 0; pass < TOKENS / ROWS; pass++) {
        unsigned row = pass * ROWS + own_row;
        copy_async<CHUNK_BYTES>((at ^ pass * ROWS % 8 * CHUNK_BYTES) + pass * ROWS * PANEL_ROW_BYTES,
                                data + row % KV_PAGE_TOKENS * source.data_bytes + page_at(source, pages, row),
                                chunk * CHUNK_VALUES < (unsigned)source.dim && is_seen(source, first + (int)row));
    }
}

template <int FORM> struct form_constant {
    static constexpr int FORM_VALUE = FORM;
};

// Calls `function` with the form of a dtype other than bfloat16, as a type.
template <typename FUNCTION> DEVICE void with_form(int dtype, const FUNCTION &function)
{
    switch (dtype) {
    case DTYPE_F32: return function(form_constant<FORM_F32>());
    case DTYPE_F16: return function(form_constant<FORM_F16>());
    case DTYPE_FP8_E4M3: return function(form_constant<FORM_E4M3>());
    case DTYPE_FP8_TOKEN: return function(form_constant<FORM_E4M3_TOKEN>());
    case DTYPE_FP8_E5M2: return function(form_constant<FORM_E5M2>());
    case DTYPE_INT8_TOKEN: return function(form_constant<FORM_INT8>());
    case DTYPE_INT4_TOKEN: return function(form_constant<FORM_INT4>());
    default: return function(form_constant<FORM_NVFP4>());
    }
}

#endif
