// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration/text_observer.h"

#include "engine/reader.h"
#include "engine/weights.h"

struct watching {
    const struct text_watch *watch;
    int tokens;                 // of the text
    struct key_sample *samples; // (layers): all but the keys and queries of a step
    struct arena arena;
};

bool text_watch_sees(const struct plan *wanted, int layer)
{
    const struct layer *described = &wanted->model->layer[layer];
    return described->kind == LAYER_ATTENTION && !described->latent;
}

bool text_watch_scale(enum dtype format, const struct tensor *tensor, float *out, struct error *err)
{
    enum dtype_scale scale = dtype_table[format].scale;
    bool has_one = scale == DTYPE_SCALE_LAYER || scale == DTYPE_SCALE_BLOCK;
    return weights_cache_scale(has_one ? tensor : NULL, out, err);
}

static void look(void *context, const struct engine *engine, int op, int chunk, int chunks)
{
    const struct watching *watching = context;
    const struct text_watch *watch = watching->watch;
    const struct engine_options *options = watch->options;
    int layer = engine->model.ops[op].layer;
    if (!text_watch_sees(watch->wanted, layer))
        return;
    struct key_sample sample = watching->samples[layer];
    sample.q = engine->seen[BUFFER_Q];
    sample.k = engine->seen[BUFFER_K];
    sample.v = engine->seen[BUFFER_V];
    sample.tokens = engine->batch.tokens;
    watch->look(watch->context, layer, &sample, chunk, chunks);
    if (chunk == 0 && options->plan.user.calibrating)
        options->plan.user.calibrating(options->plan.user.progress_context,
                                       0.5 + 0.5 * layer / engine->model.config.layers);
}

static struct key_sample sample_of(const struct watching *watching, int index)
{
    const struct plan *wanted = watching->watch->wanted;
    const struct layer *layer = &wanted->model->layer[index];
    const struct model_config *config = &wanted->model->config;
    return (struct key_sample){ .heads = layer->heads,
                                .kv_heads = layer->kv_heads,
                                .head_dim = layer->head_dim,
                                .window = layer->window,
                                .rotated = layer->frequencies ? config->rotated : 0,
                                .rope_frequencies = layer_frequencies(layer, watching->tokens),
                                .frequencies = layer_frequencies(layer, wanted->max_model_len),
                                .scale = (float)config->attention_scale,
                                .softcap = (float)config->attention_softcap };
}

// Attention's sinks are among its scores.
static bool prepare(struct watching *watching, struct error *err)
{
    const struct plan *wanted = watching->watch->wanted;
    const struct model *model = wanted->model;
    watching->samples = ARENA_NEW(&watching->arena, struct key_sample, model->config.layers);
    for (int i = 0; i < model->config.layers; i++)
        if (text_watch_sees(wanted, i))
            watching->samples[i] = sample_of(watching, i);
    for (int i = 0; i < model->op_count; i++)
        if (model->ops[i].kind == OP_ATTENTION
            && !weights_vector(&watching->arena, model->ops[i].vector, 0, &watching->samples[model->ops[i].layer].sinks,
                               err))
            return false;
    return true;
}

static void show_loading(void *context, double done)
{
    const struct engine_options *options = context;
    if (options->plan.user.calibrating)
        options->plan.user.calibrating(options->plan.user.progress_context, 0.5 * done);
}

static bool read_text(struct watching *watching, const struct checkpoint *checkpoint, const int32_t *ids,
                      struct error *err)
{
    const struct engine_options *options = watching->watch->options;
    const struct engine_watch watch = { .ops = 1u << OP_KV_WRITE,
                                        .buffers = 1u << BUFFER_Q | 1u << BUFFER_K | 1u << BUFFER_V,
                                        .after = look,
                                        .context = watching };
    struct engine_options own = *options;
    const struct nibble_options *user = &options->plan.user;
    own.plan = (struct plan_options){
        .user = { .device = user->device,
                  .kv_cache_dtype = dtype_word(watching->watch->wanted->model->config.kv_dtype),
                  .kv_transform = kv_transform_word(0),
                  .max_model_len = watching->tokens,
                  .batch_tokens = watching->tokens,
                  .memory_bytes = user->memory_bytes,
                  .gpu_memory_utilization = user->gpu_memory_utilization,
                  .threads = user->threads,
                  .no_self_test = user->no_self_test,
                  .progress = show_loading,
                  .progress_context = (void *)options },
        .apart = true,
    };
    own.watch = &watch;
    struct engine engine;
    struct reader reader;
    const float *logits;
    if (!engine_open(&engine, checkpoint, &own, err))
        return false;
    reader_open(&reader, &engine);
    bool ok = reader_assign(&reader, ids, (size_t)watching->tokens, err) && reader_read(&reader, &logits, err);
    reader_close(&reader);
    engine_close(&engine);
    return ok;
}

bool text_watch_run(const struct text_watch *watch, const struct checkpoint *checkpoint, const int32_t *ids,
                    size_t count, struct error *err)
{
    int context = watch->wanted->model->config.context;
    int tokens = context < TEXT_WATCH_TOKENS ? context : TEXT_WATCH_TOKENS;
    struct watching watching = { .watch = watch, .tokens = count < (size_t)tokens ? (int)count : tokens };
    if (watching.tokens < TEXT_WATCH_TOKENS_MIN)
        return fail(err, "%d tokens are too few to measure the cache on; %d are needed", watching.tokens,
                    TEXT_WATCH_TOKENS_MIN);
    bool ok = prepare(&watching, err) && read_text(&watching, checkpoint, ids, err);
    arena_free(&watching.arena);
    if (watch->options->plan.user.calibrating)
        watch->options->plan.user.calibrating(watch->options->plan.user.progress_context, 1);
    return ok;
}
