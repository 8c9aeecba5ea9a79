// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_prefill_batch.cuh: tiles of prefill attention, loaded in two steps. Bytes are copied to shared
// memory (cp.async) long before they are dequantised, each unit by the thread that dequantises it, so that no barrier
// is needed in between.
#ifndef KERNEL_CUDA_ATTENTION_PREFILL_BATCH_CUH
#define KERNEL_CUDA_ATTENTION_PREFILL_BATCH_CUH

#include "kernel/cuda/attention_prefill_fetch.cuh"
#include "kernel/cuda/attention_prefill_shapes.h"

// A batch is what a thread copies at a time: as many of its units as ROOM bytes hold. A scale is copied with its whole
// word.
template <int FORM, int ROOM> struct batch_of {
    static constexpr unsigned BYTES = unit<FORM>::BYTES, COPY_BYTES = BYTES < 16 ? BYTES : 16;
    static constexpr bool SCALED = unit<FORM>::BY_TOKEN || unit<FORM>::BY_BLOCK;
    static constexpr unsigned EACH = BYTES + (SCALED ? 4 : 0);
    static constexpr unsigned PASSES = 4 * EACH <= ROOM ? 4 : 2 * EACH <= ROOM ? 2 : 1;
    static_assert(EACH <= ROOM, "one at least");

    // The layout of all threads' batches: copy after copy, then the scales, each thread by thread.
    static __device__ __forceinline__ uint32_t copy_at(unsigned i, unsigned byte, unsigned threads, unsigned thread)
    {
        return (i * BYTES + byte) * threads + thread * COPY_BYTES;
    }

    static __device__ __forceinline__ uint32_t scale_at(unsigned i, unsigned threads, unsigned thread)
    {
        return (PASSES * BYTES + i * 4) * threads + thread * 4;
    }
};

// The offset of a unit's scale within its page.
template <int FORM> DEVICE uint32_t scale_from(const struct source &source, unsigned row, unsigned index)
{
    return row % KV_PAGE_TOKENS * source.scale_bytes + (unit<FORM>::BY_BLOCK ? index : 0);
}

template <int FORM, int ROOM, int D, int THREADS>
DEVICE void batch_copy(const struct source &source, uint32_t pages, int first, unsigned batch,
                       const tile_slice<D, THREADS> &own, uint32_t room, unsigned thread)
{
    using shape = batch_of<FORM, ROOM>;
#pragma unroll
    for (unsigned i = 0; i < shape::PASSES; i++) {
        unsigned row = (batch * shape::PASSES + i) * tile_slice<D, THREADS>::ROWS + own.row;
        uint64_t page = page_at(source, pages, row);
        bool wanted = own.is_within(source) && is_seen(source, first + (int)row);
        const uint8_t *data = source.data + (row % KV_PAGE_TOKENS * source.data_bytes + own.unit * shape::BYTES);
#pragma unroll
        for (unsigned byte = 0; byte < shape::BYTES; byte += shape::COPY_BYTES)
            copy_async<shape::COPY_BYTES>(room + shape::copy_at(i, byte, THREADS, thread), data + page + byte, wanted);
        if (shape::SCALED)
            copy_async<4>(room + shape::scale_at(i, THREADS, thread),
                          source.scales + (scale_from<FORM>(source, row, own.unit) & ~3u) + page, wanted);
    }
}

template <int FORM, int ROOM, int D, int THREADS>
DEVICE void batch_read(const struct source &source, unsigned batch, const tile_slice<D, THREADS> &own, uint32_t room,
                       unsigned thread, unit<FORM> units[batch_of<FORM, ROOM>::PASSES])
{
    using shape = batch_of<FORM, ROOM>;
#pragma unroll
    for (unsigned i = 0; i < shape::PASSES; i++) {
#pragma unroll
        for (unsigned byte = 0; byte < shape::BYTES; byte += shape::COPY_BYTES)
            shared_load<shape::COPY_BYTES>(room + shape::copy_at(i, byte, THREADS, thread), units[i].words + byte / 4);
        if (shape::SCALED)
            shared_load<4>(room + shape::scale_at(i, THREADS, thread), &units[i].scale);
        if (unit<FORM>::BY_BLOCK) {
            unsigned row = (batch * shape::PASSES + i) * tile_slice<D, THREADS>::ROWS + own.row;
            units[i].scale = units[i].scale >> scale_from<FORM>(source, row, own.unit) % 4 * 8 & 0xFF;
        }
    }
}

#endif
