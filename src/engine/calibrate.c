// SPDX-License-Identifier: Apache-2.0
#include "engine/calibrate.h"

#include <math.h>

#include "engine/key_error.h"
#include "engine/reader.h"
#include "engine/weights.h"

// What the watch needs, and what it finds: each caller writes in places of its own.
struct measuring {
    struct kv_calibration *out;
    const struct plan *wanted;
    const struct engine_options *options; // of who asks
    int tokens;                           // of the text
    struct key_sample *samples;           // (layers): all but what a step brings
    float **centres;                      // (layers), (kv_heads, head_dim)
    struct key_error **errors;            // (layers), (kv_heads, KV_TRANSFORMS)
};

bool calibrate_measures(const struct plan *wanted, int layer)
{
    const struct layer *described = &wanted->model->layer[layer];
    return described->kind == LAYER_ATTENTION && !described->latent;
}

const struct kv_side *calibrate_keys(const struct plan *wanted, int layer)
{
    return &wanted->classes[wanted->layer[layer].class_index].layout.k;
}

int calibrate_kept(const struct plan *wanted, int layer)
{
    int sink = wanted->layer[layer].sink_class;
    return sink == PLAN_NO_CLASS ? 0 : wanted->classes[sink].kind.end * KV_PAGE_TOKENS;
}

// Keys in 16 bits have a centre, for who asks for it, and no error to speak of.
static bool has_error(const struct plan *wanted, int layer)
{
    return dtype_table[calibrate_keys(wanted, layer)->dtype].bits < 16;
}

static void measure_layer(void *context, const struct engine *engine, int op, int part, int parts)
{
    struct measuring *m = context;
    int layer = engine->model.ops[op].layer;
    if (!calibrate_measures(m->wanted, layer))
        return;
    struct key_sample sample = m->samples[layer];
    sample.q = engine->seen[BUFFER_Q];
    sample.k = engine->seen[BUFFER_K];
    sample.v = engine->seen[BUFFER_V];
    sample.tokens = engine->batch.tokens;
    for (int item = part; item < sample.kv_heads * KV_TRANSFORMS; item += parts) {
        int head = item / KV_TRANSFORMS, transform = item % KV_TRANSFORMS;
        float centre[HEAD_DIM_MAX];
        key_centre(&sample, head, PLAN_TYPICAL_TOKENS, centre);
        if (transform == 0)
            memcpy(m->centres[layer] + head * sample.head_dim, centre, (size_t)sample.head_dim * sizeof *centre);
        if (has_error(m->wanted, layer))
            m->errors[layer][item] = key_error(&sample, head, centre, transform);
    }
    if (part == 0 && m->options->calibrating)
        m->options->calibrating(m->options->progress_context, 0.5 + 0.5 * layer / engine->model.config.layers);
}

static bool prepare_layer(struct measuring *m, int index, struct error *err)
{
    const struct layer *layer = &m->wanted->model->layer[index];
    const struct kv_side *side = calibrate_keys(m->wanted, index);
    const struct model_config *config = &m->wanted->model->config;
    enum dtype_scale scale = dtype_table[side->dtype].scale;
    size_t heads = (size_t)layer->kv_heads;
    m->centres[index] = ARENA_NEW(&m->out->arena, float, heads * (size_t)layer->head_dim);
    m->errors[index] = ARENA_NEW(&m->out->arena, struct key_error, heads * KV_TRANSFORMS);
    m->samples[index] = (struct key_sample){ .heads = layer->heads,
                                             .kv_heads = layer->kv_heads,
                                             .head_dim = layer->head_dim,
                                             .window = layer->window,
                                             .rotated = layer->frequencies ? config->rotated : 0,
                                             .turned_by = layer_frequencies(layer, m->tokens),
                                             .frequencies = layer_frequencies(layer, m->wanted->max_model_len),
                                             .scale = (float)config->attention_scale,
                                             .softcap = (float)config->attention_softcap,
                                             .format = side->dtype,
                                             .scale_search = m->wanted->scale_search,
                                             .kept = calibrate_kept(m->wanted, index) };
    bool has_one = scale == DTYPE_SCALE_LAYER || scale == DTYPE_SCALE_BLOCK;
    return weights_cache_scale(has_one ? layer->k_scale : NULL, &m->samples[index].layer_scale, err);
}

// Attention's sinks are among its scores.
static bool prepare_sinks(struct measuring *m, struct error *err)
{
    const struct model *model = m->wanted->model;
    for (int i = 0; i < model->op_count; i++)
        if (model->ops[i].kind == OP_ATTENTION
            && !weights_vector(&m->out->arena, model->ops[i].vector, 0, &m->samples[model->ops[i].layer].sinks, err))
            return false;
    return true;
}

static bool prepare(struct measuring *m, struct error *err)
{
    int layers = m->wanted->model->config.layers;
    m->out->layers = layers;
    m->out->layer = ARENA_NEW(&m->out->arena, struct kv_calibrated, layers);
    m->samples = ARENA_NEW(&m->out->arena, struct key_sample, layers);
    m->centres = ARENA_NEW(&m->out->arena, float *, layers);
    m->errors = ARENA_NEW(&m->out->arena, struct key_error *, layers);
    for (int i = 0; i < layers; i++)
        if (calibrate_measures(m->wanted, i) && !prepare_layer(m, i, err))
            return false;
    return prepare_sinks(m, err);
}

// A layer whose keys are not all numbers stays without a result.
static void conclude(struct measuring *m)
{
    for (int i = 0; i < m->out->layers; i++) {
        struct kv_calibrated *layer = &m->out->layer[i];
        bool finite = true;
        if (!calibrate_measures(m->wanted, i))
            continue;
        layer->k = m->samples[i].format;
        for (int transform = 0; transform < KV_TRANSFORMS; transform++) {
            struct key_error sum = { 0 };
            for (int head = 0; head < m->samples[i].kv_heads; head++) {
                sum.apart += m->errors[i][head * KV_TRANSFORMS + transform].apart;
                sum.all += m->errors[i][head * KV_TRANSFORMS + transform].all;
            }
            layer->error[transform] = sum.all > 0 ? (float)sqrt(sum.apart / sum.all) : 0;
            finite = finite && isfinite(layer->error[transform]);
        }
        for (int j = 0; j < m->samples[i].kv_heads * m->samples[i].head_dim; j++)
            finite = finite && isfinite(m->centres[i][j]);
        layer->centre = finite ? m->centres[i] : NULL;
    }
}

static void show_loading(void *context, double done)
{
    const struct engine_options *options = context;
    if (options->calibrating)
        options->calibrating(options->progress_context, 0.5 * done);
}

static bool read_text(struct engine *engine, const int32_t *ids, size_t count, struct error *err)
{
    struct reader reader;
    const float *logits;
    reader_open(&reader, engine);
    bool ok = reader_assign(&reader, ids, count, err) && reader_read(&reader, &logits, err);
    reader_close(&reader);
    return ok;
}

bool calibrate(struct kv_calibration *out, const struct checkpoint *checkpoint, const struct plan *wanted,
               const struct engine_options *options, const int32_t *ids, size_t count, struct error *err)
{
    const struct model_config *config = &wanted->model->config;
    struct measuring m = { .out = out, .wanted = wanted, .options = options };
    struct engine_watch watch = { .ops = 1u << OP_KV_WRITE,
                                  .buffers = 1u << BUFFER_Q | 1u << BUFFER_K | 1u << BUFFER_V,
                                  .after = measure_layer,
                                  .context = &m };
    int tokens = config->context < CALIBRATE_TOKENS ? config->context : CALIBRATE_TOKENS;
    m.tokens = tokens = count < (size_t)tokens ? (int)count : tokens;
    if (tokens < CALIBRATE_TOKENS_MIN)
        return fail(err, "%d tokens are too few to calibrate the cache on; %d are needed", tokens,
                    CALIBRATE_TOKENS_MIN);
    struct engine_options own = *options;
    own.plan = (struct plan_options){ .kv_cache_dtype = dtype_word(config->kv_dtype),
                                      .kv_transform = kv_transform_word(0),
                                      .max_model_len = tokens,
                                      .batch_tokens = tokens,
                                      .memory_bytes = options->plan.memory_bytes,
                                      .gpu_memory_utilization = options->plan.gpu_memory_utilization,
                                      .apart = true };
    own.progress = show_loading;
    own.progress_context = (void *)options;
    own.watch = &watch;
    struct engine engine;
    *out = (struct kv_calibration){ 0 };
    if (!prepare(&m, err) || !engine_open(&engine, checkpoint, &own, err))
        return false;
    bool ok = read_text(&engine, ids, (size_t)tokens, err);
    engine_close(&engine);
    if (ok)
        conclude(&m);
    if (options->calibrating)
        options->calibrating(options->progress_context, 1);
    return ok;
}

void calibration_free(struct kv_calibration *calibration)
{
    arena_free(&calibration->arena);
    *calibration = (struct kv_calibration){ 0 };
}
