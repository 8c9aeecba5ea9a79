// SPDX-License-Identifier: Apache-2.0
// kernel/ref/kv_write.c: quantises K and V and stores them in their pages (reshape_and_cache); the reference.
#include "kernel/ref/kv_codec.h"
#include "kernel/ref/table.h"

// Stores every head's vector of one token. x: (heads, dim).
static void store_token(const struct kv_side *side, const float *x, float layer_scale, bool search, uint8_t *layer,
                        int slot)
{
    const struct kv_codec *codec = &kv_codecs[side->dtype];
    for (int head = 0; head < side->heads; head++)
        (search && codec->store_searched ? codec->store_searched : codec->store)(
            x + (size_t)head * (size_t)side->dim, side->dim, layer_scale, layer + kv_data_at(side, head, slot),
            layer + kv_scale_at(side, head, slot));
}

void kv_write_ref(const void *arguments, int chunk, int chunks)
{
    const struct kv_write_args *args = arguments;
    int first, end;
    kernel_range(args->batch->tokens, chunk, chunks, &first, &end);
    for (int s = 0; s < args->batch->sequences; s++) {
        const struct batch_sequence *sequence = &args->batch->sequence[s];
        int from = sequence->first > first ? sequence->first : first;
        int to = sequence->first + sequence->count < end ? sequence->first + sequence->count : end;
        for (int row = from; row < to; row++) {
            int position = args->batch->positions[row], page = position / KV_PAGE_TOKENS;
            const struct kv_place *place = page < args->sink_pages ? &args->sink : &args->cache;
            const struct kv_side *k = &place->layout.k, *v = &place->layout.v;
            int32_t number = sequence->pages[place->class_index][page];
            uint8_t *layer = place->pool + (size_t)number * place->page_bytes + place->layer_offset;
            int slot = position % KV_PAGE_TOKENS;
            store_token(k, args->k + (size_t)row * (size_t)(k->heads * k->dim), place->k_scale, args->scale_search,
                        layer, slot);
            if (!place->layout.latent)
                store_token(v, args->v + (size_t)row * (size_t)(v->heads * v->dim), place->v_scale, args->scale_search,
                            layer, slot);
        }
    }
}
