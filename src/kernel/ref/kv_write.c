// SPDX-License-Identifier: Apache-2.0
// kernel/ref/kv_write.c: K and V into their pages, through the codec of each side's format.
#include "kernel/ref/kv_codec.h"
#include "kernel/ref/table.h"

// Stores every head's vector of one token. x: (heads, dim).
static void store_token(const struct kv_side *side, const float *x, float layer_scale, uint8_t *layer, int slot)
{
    for (int head = 0; head < side->heads; head++)
        kv_codecs[side->dtype].store(x + (size_t)head * (size_t)side->dim, side->dim, layer_scale,
                                     layer + kv_data_at(side, head, slot), layer + kv_scale_at(side, head, slot));
}

void kv_write_ref(const void *arguments, int part, int parts)
{
    const struct kv_write_args *args = arguments;
    const struct kv_place *cache = &args->cache;
    const struct kv_side *k = &cache->layout.k, *v = &cache->layout.v;
    int first, end;
    kernel_share(args->batch->tokens, part, parts, &first, &end);
    for (int s = 0; s < args->batch->sequences; s++) {
        const struct batch_sequence *sequence = &args->batch->sequence[s];
        int from = sequence->first > first ? sequence->first : first;
        int to = sequence->first + sequence->count < end ? sequence->first + sequence->count : end;
        for (int row = from; row < to; row++) {
            int position = args->batch->positions[row];
            int32_t page = sequence->pages[cache->class_index][position / KV_PAGE_TOKENS];
            uint8_t *layer = cache->pool + (size_t)page * cache->page_bytes + cache->layer_offset;
            int slot = position % KV_PAGE_TOKENS;
            store_token(k, args->k + (size_t)row * (size_t)(k->heads * k->dim), cache->k_scale, layer, slot);
            if (!cache->layout.latent)
                store_token(v, args->v + (size_t)row * (size_t)(v->heads * v->dim), cache->v_scale, layer, slot);
        }
    }
}
