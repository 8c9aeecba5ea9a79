// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/kv_write_latent.cu: quantises latents (MLA) into the pages of the cache. A block has one token: its first
// warp has as many channels as a warp holds, its second warp the others.
#include <float.h>

#include "kernel/cuda/kv_store.cuh"

// The latent's part of a record: eight lanes have a group of 128.
DEVICE void store_groups(const struct kv_target &to, const float (&x)[VECTOR_PART])
{
    enum { LANES = KV_RECORD_GROUP / VECTOR_PART };
    float scale = fminf(lanes_max(magnitude_max(x), LANES), KV_MAGNITUDE_MAX) / 448;
    scale = scale > FLT_MIN ? scale : FLT_MIN;
    if (to.lane % LANES == 0)
        ((float *)(to.data + KV_RECORD_SCALES_AT))[to.lane / LANES] = scale;
    kv_put_codes<8>(to, x, [=](float value) { return f32_to_e4m3(value / scale); });
}

extern "C" __global__ void __launch_bounds__(2 * WARP) kv_write_latent(const __grid_constant__ struct cuda_kv_write p)
{
    enum { HELD = VECTOR_PART * WARP };
    const struct cuda_side &side = p.cache.k;
    int row = (int)blockIdx.x, dim = p.cache.k_dim, first = warp_index() * HELD;
    kernel_begin();
    if (row >= p.batch.counts[CUDA_TOKENS] || first >= dim)
        return;
    int position = p.batch.positions[row], sequence = p.batch.sequence_of[row], slot = position % KV_PAGE_TOKENS;
    int at = p.batch.table_at[p.cache.class_index * p.batch.sequences_max + sequence];
    uint8_t *page = p.cache.pool + (uint64_t)p.batch.tables[at + position / KV_PAGE_TOKENS] * p.cache.page_bytes;
    uint8_t *data = page + side.data + slot * side.data_bytes, *scales = page + side.scales + slot * side.scale_bytes;
    int held = min(dim - first, (int)HELD);
    float x[VECTOR_PART];
    vector_load(p.k + (size_t)row * (size_t)dim + first, held, lane_index(), x);
    struct kv_target to = { data, scales, held, lane_index(), WARP, true, side.scale, p.scale_search != 0 };
    if (side.dtype == DTYPE_FP8_DS_MLA) {
        if (first == 0)
            return store_groups(to, x);
        to.data = data + KV_RECORD_TURNED_AT;
        return kv_store(DTYPE_BF16, to, x);
    }
    to.data = data + (size_t)first * side.data_bytes / dim;
    to.scale = scales + (size_t)first * side.scale_bytes / dim;
    kv_store(side.dtype, to, x);
}
