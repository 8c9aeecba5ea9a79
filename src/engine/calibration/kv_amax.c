// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration/kv_amax.h"

#include <assert.h>
#include <math.h>

#include "kernel/ref/kv_codec.h"

static float side_amax(const struct kv_side *side, const uint8_t *layer, int token)
{
    float x[LATENT_DIM_MAX], most = 0;
    for (int head = 0; head < side->heads; head++) {
        kv_codecs[side->dtype].load(layer + kv_data_at(side, head, token), layer + kv_scale_at(side, head, token),
                                    side->dim, 1, x);
        for (int i = 0; i < side->dim; i++)
            most = fmaxf(most, fabsf(x[i]));
    }
    return most;
}

void kv_amax(const struct engine *engine, const struct sequence *sequence, int from, float *k, float *v)
{
    assert(!engine->gpu);
    for (int i = 0; i < engine->model.config.layers; i++) {
        const struct plan_layer *place = &engine->plan.layer[i];
        if (engine->model.layer[i].kind != LAYER_ATTENTION)
            continue;
        const struct kv_layout *layout = &engine->plan.classes[place->class_index].layout;
        const struct kv_pool *pool = &engine->pools[place->class_index];
        const struct kv_table *table = &sequence->tables[place->class_index];
        for (int position = from; position < sequence->cached; position++) {
            int32_t page = table->pages[position / KV_PAGE_TOKENS];
            if (page == KV_PAGE_NONE)
                continue;
            const uint8_t *layer = pool->bytes + (size_t)page * pool->page_bytes + place->offset;
            k[i] = fmaxf(k[i], side_amax(&layout->k, layer, position % KV_PAGE_TOKENS));
            v[i] = fmaxf(v[i], side_amax(&layout->v, layer, position % KV_PAGE_TOKENS));
        }
    }
}
