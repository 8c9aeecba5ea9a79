// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration/measure.h"

#include <assert.h>
#include <math.h>

#include "engine/calibration/text_observer.h"
#include "kernel/ref/kv_codec.h"

// The input and the results of the observer. Each caller writes in places of its own.
struct measuring {
    struct kv_calibration *out;
    const struct plan *wanted;
    int first, ways;           // those of *out that are measured
    float *scales;             // (ways, layers): of keys in the cache; 0: that cannot be measured
    float **centres;           // (layers), (kv_heads, head_dim): where none is known
    struct key_error **errors; // (layers), (kv_heads, ways, KV_TRANSFORMS)
};

// ---- ways to store keys ----

static struct kv_way way_of(const struct plan *wanted, int layer)
{
    const struct plan_layer *planned = &wanted->layer[layer];
    enum dtype k = wanted->classes[planned->class_index].layout.k.dtype;
    int sink = planned->sink_class;
    return (struct kv_way){ .k = k,
                            .kept = sink == PLAN_NO_CLASS ? 0 : wanted->classes[sink].kind.end * KV_PAGE_TOKENS,
                            .search = wanted->scale_search && kv_codecs[k].store_searched };
}

static const struct kv_way *find_way(const struct kv_calibration *known, struct kv_way way)
{
    for (int i = 0; i < known->way_count; i++)
        if (known->ways[i].k == way.k && known->ways[i].kept == way.kept && known->ways[i].search == way.search)
            return &known->ways[i];
    return NULL;
}

bool calibration_suffices(const struct kv_calibration *calibration, const struct plan *wanted)
{
    for (int i = 0; i < wanted->model->config.layers; i++)
        if (wanted->layer[i].undecided && !find_way(calibration, way_of(wanted, i)))
            return false;
    return calibration->layers;
}

void calibration_apply(struct kv_calibration *calibration, const struct plan *wanted)
{
    for (int i = 0; i < calibration->layers; i++) {
        struct kv_calibrated *layer = &calibration->layer[i];
        const struct kv_way *way = layer->centre ? find_way(calibration, way_of(wanted, i)) : NULL;
        bool finite = way;
        for (int transform = 0; transform < KV_TRANSFORMS && finite; transform++)
            finite = isfinite(way->errors[i][transform]);
        if (!finite)
            continue;
        layer->k = (enum dtype)way->k;
        memcpy(layer->error, way->errors[i], sizeof layer->error);
    }
}

// ---- measuring ----

// One way and transform for one head.
static void measure_way(struct measuring *m, int layer, const struct key_sample *seen, int head, int item,
                        const float *centre)
{
    int way = item / KV_TRANSFORMS, transform = item % KV_TRANSFORMS;
    struct key_sample sample = *seen;
    sample.format = (enum dtype)m->out->ways[m->first + way].k;
    sample.kept = m->out->ways[m->first + way].kept;
    sample.scale_search = m->out->ways[m->first + way].search;
    sample.layer_scale = m->scales[way * m->out->layers + layer];
    struct key_error *error = &m->errors[layer][head * m->ways * KV_TRANSFORMS + item];
    if (sample.layer_scale > 0)
        *error = key_error(&sample, head, centre, transform);
    else
        error->apart = NAN;
}

// For each head its centre comes first, then each way with each transform.
static void measure_layer(void *context, int layer, const struct key_sample *seen, int chunk, int chunks)
{
    struct measuring *m = context;
    const float *known = m->out->layer[layer].centre;
    int dim = seen->head_dim, items = 1 + m->ways * KV_TRANSFORMS;
    for (int i = chunk; i < seen->kv_heads * items; i += chunks) {
        int head = i / items, item = i % items;
        float centre[HEAD_DIM_MAX];
        if (known)
            memcpy(centre, known + head * dim, (size_t)dim * sizeof *centre);
        else
            key_centre(seen, head, PLAN_TYPICAL_TOKENS, centre);
        if (item > 0)
            measure_way(m, layer, seen, head, item - 1, centre);
        else if (!known)
            memcpy(m->centres[layer] + head * dim, centre, (size_t)dim * sizeof *centre);
    }
}

static void add_missing(struct measuring *m)
{
    struct kv_calibration *out = m->out;
    m->first = out->way_count;
    for (int i = 0; i < out->layers; i++) {
        if (!m->wanted->layer[i].undecided || find_way(out, way_of(m->wanted, i)))
            continue;
        assert(out->way_count < KV_WAYS_MAX);
        struct kv_way *way = &out->ways[out->way_count++];
        *way = way_of(m->wanted, i);
        way->errors = arena_new(&out->arena, (size_t)out->layers, sizeof *way->errors);
    }
    m->ways = out->way_count - m->first;
}

// The cache scale of a layer's keys; 0 where the format does not fit them or the checkpoint's scale is invalid.
static float scale_of(struct measuring *m, int layer, enum dtype k)
{
    const struct layer *described = &m->wanted->model->layer[layer];
    struct error ignored;
    float scale;
    bool fits = !kv_format_misfit(&m->out->arena, k, described->head_dim)
        && text_watch_scale(k, described->k_scale, &scale, &ignored);
    return fits ? scale : 0;
}

static void prepare(struct measuring *m)
{
    struct kv_calibration *out = m->out;
    const struct model *model = m->wanted->model;
    if (!out->layers) {
        out->layers = model->config.layers;
        out->layer = ARENA_NEW(&out->arena, struct kv_calibrated, out->layers);
    }
    add_missing(m);
    m->centres = ARENA_NEW(&out->arena, float *, out->layers);
    m->errors = ARENA_NEW(&out->arena, struct key_error *, out->layers);
    m->scales = ARENA_NEW(&out->arena, float, m->ways * out->layers);
    for (int i = 0; i < out->layers; i++) {
        if (!text_watch_sees(m->wanted, i))
            continue;
        size_t heads = (size_t)model->layer[i].kv_heads, dim = (size_t)model->layer[i].head_dim;
        m->centres[i] = ARENA_NEW(&out->arena, float, heads *dim);
        m->errors[i] = ARENA_NEW(&out->arena, struct key_error, heads * (size_t)m->ways * KV_TRANSFORMS);
        for (int way = 0; way < m->ways; way++)
            m->scales[way * out->layers + i] = scale_of(m, i, (enum dtype)out->ways[m->first + way].k);
    }
}

static float whole_error(const struct measuring *m, int layer, int item)
{
    struct key_error sum = { 0 };
    for (int head = 0; head < m->wanted->model->layer[layer].kv_heads; head++) {
        sum.apart += m->errors[layer][head * m->ways * KV_TRANSFORMS + item].apart;
        sum.all += m->errors[layer][head * m->ways * KV_TRANSFORMS + item].all;
    }
    return isnan(sum.apart) ? NAN : sum.all > 0 ? (float)sqrt(sum.apart / sum.all) : 0;
}

// A layer whose keys are not all numbers stays without a result.
static void conclude(struct measuring *m)
{
    for (int i = 0; i < m->out->layers; i++) {
        if (!text_watch_sees(m->wanted, i))
            continue;
        const struct layer *layer = &m->wanted->model->layer[i];
        bool finite = true;
        for (int j = 0; j < layer->kv_heads * layer->head_dim; j++)
            finite = finite && isfinite(m->centres[i][j]);
        if (!m->out->layer[i].centre && finite)
            m->out->layer[i].centre = m->centres[i];
        m->out->layer[i].centre_count = (size_t)layer->kv_heads * (size_t)layer->head_dim;
        for (int item = 0; item < m->ways * KV_TRANSFORMS; item++)
            m->out->ways[m->first + item / KV_TRANSFORMS].errors[i][item % KV_TRANSFORMS] = whole_error(m, i, item);
    }
}

bool calibrate(struct kv_calibration *out, const struct checkpoint *checkpoint, const struct plan *wanted,
               const struct engine_options *options, const int32_t *ids, size_t count, struct error *err)
{
    struct measuring m = { .out = out, .wanted = wanted };
    const struct text_watch watch = { wanted, options, measure_layer, &m };
    prepare(&m);
    if (!text_watch_run(&watch, checkpoint, ids, count, err))
        return false;
    conclude(&m);
    calibration_apply(out, wanted);
    return true;
}

void calibration_free(struct kv_calibration *calibration)
{
    arena_free(&calibration->arena);
    *calibration = (struct kv_calibration){ 0 };
}
