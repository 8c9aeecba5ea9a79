// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration/layer_error.h"

#include <math.h>

#include "engine/calibration/text_observer.h"

struct measuring {
    const struct plan *plan;
    struct scales {
        float k, v;
    } *scales;                    // (layers)
    struct stored_error **errors; // (layers), (kv_heads): each caller writes some heads'
    struct arena arena;
};

static void measure_layer(void *context, int layer, const struct key_sample *seen, int chunk, int chunks)
{
    struct measuring *m = context;
    const struct plan_layer *planned = &m->plan->layer[layer];
    const struct kv_layout *layout = &m->plan->classes[planned->class_index].layout;
    struct key_sample sample = *seen;
    sample.format = layout->k.dtype;
    sample.v_format = layout->v.dtype;
    sample.layer_scale = m->scales[layer].k;
    sample.v_layer_scale = m->scales[layer].v;
    sample.scale_search = m->plan->scale_search;
    if (planned->sink_class != PLAN_NO_CLASS)
        sample.kept = m->plan->classes[planned->sink_class].kind.end * KV_PAGE_TOKENS;
    const struct kv_calibration *known = m->plan->calibration;
    const float *centre = known && known->layers ? known->layer[layer].centre : NULL;
    int transform = centre ? planned->transform : planned->transform & ~KV_CENTRE;
    for (int head = chunk; head < sample.kv_heads; head += chunks)
        m->errors[layer][head] = stored_error(&sample, head, centre ? centre + head * sample.head_dim : NULL,
                                              transform);
}

static bool prepare(struct measuring *m, struct error *err)
{
    const struct model *model = m->plan->model;
    m->scales = ARENA_NEW(&m->arena, struct scales, model->config.layers);
    m->errors = ARENA_NEW(&m->arena, struct stored_error *, model->config.layers);
    for (int i = 0; i < model->config.layers; i++) {
        const struct layer *layer = &model->layer[i];
        if (!text_watch_sees(m->plan, i))
            continue;
        const struct kv_layout *layout = &m->plan->classes[m->plan->layer[i].class_index].layout;
        m->errors[i] = ARENA_NEW(&m->arena, struct stored_error, layer->kv_heads);
        if (!text_watch_scale(layout->k.dtype, layer->k_scale, &m->scales[i].k, err)
            || !text_watch_scale(layout->v.dtype, layer->v_scale, &m->scales[i].v, err))
            return false;
    }
    return true;
}

static void add(struct key_error *sum, struct key_error part)
{
    sum->apart += part.apart;
    sum->all += part.all;
}

static double relative(struct key_error error) { return error.all > 0 ? sqrt(error.apart / error.all) : 0; }

static struct nibble_layer_error conclude(const struct measuring *m, int layer)
{
    struct stored_error sum = { 0 };
    for (int head = 0; m->errors[layer] && head < m->plan->model->layer[layer].kv_heads; head++) {
        add(&sum.k, m->errors[layer][head].k);
        add(&sum.v, m->errors[layer][head].v);
        add(&sum.out, m->errors[layer][head].out);
    }
    return (struct nibble_layer_error){ relative(sum.k), relative(sum.v), relative(sum.out) };
}

bool layer_errors(const struct checkpoint *checkpoint, const struct plan *plan, const struct engine_options *options,
                  const int32_t *ids, size_t count, struct nibble_layer_error *errors, struct error *err)
{
    struct measuring m = { .plan = plan };
    const struct text_watch watch = { plan, options, measure_layer, &m };
    bool ok = prepare(&m, err) && text_watch_run(&watch, checkpoint, ids, count, err);
    for (int i = 0; i < plan->model->config.layers && ok; i++)
        errors[i] = conclude(&m, i);
    arena_free(&m.arena);
    return ok;
}
