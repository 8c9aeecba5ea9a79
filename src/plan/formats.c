// SPDX-License-Identifier: Apache-2.0
// plan/formats.c: each layer's K and V format, from the flags, the checkpoint's own declaration and the skip list, and
// the classes of layers that follow. Every decision reads the layer's own spec.
#include <string.h>

#include "kv/table.h"
#include "plan/decide.h"
#include "plan/kv_flag.h"

static bool same_side(const struct kv_side *a, const struct kv_side *b)
{
    return a->dtype == b->dtype && a->heads == b->heads && a->dim == b->dim;
}

static int find_class(const struct plan *plan, const struct plan_class *wanted)
{
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        if (!class->kind.state && class->kind.window == wanted->kind.window && class->kind.begin == wanted->kind.begin
            && class->kind.end == wanted->kind.end && class->layout.latent == wanted->layout.latent
            && same_side(&class->layout.k, &wanted->layout.k) && same_side(&class->layout.v, &wanted->layout.v))
            return i;
    }
    return -1;
}

// Snapshots of states are to take no more than the keys and values of the same tokens, within reason: of the whole
// model, so that ranks with fewer heads choose the same.
static int choose_state_tokens(const struct plan *plan, size_t state_bytes)
{
    const struct model_shard *shard = &plan->model->shard;
    size_t token_bytes = plan_token_bytes(plan);
    if (shard->ranks)
        token_bytes = token_bytes / (size_t)shard->kv_heads * (size_t)plan->model->config.kv_heads;
    int tokens = PLAN_STATE_TOKENS_MIN;
    while (tokens < PLAN_STATE_TOKENS_MAX && (size_t)tokens * token_bytes < state_bytes)
        tokens *= 2;
    return tokens;
}

// The class of this kind, which may be new, with one more layer, whose place in its pages is *offset; PLAN_NO_CLASS
// when there are too many.
static int join_class(struct plan *plan, const struct plan_class *wanted, size_t *offset)
{
    int found = find_class(plan, wanted);
    if (found < 0 && plan->class_count == KV_CLASSES_MAX)
        return PLAN_NO_CLASS;
    if (found < 0)
        plan->classes[found = plan->class_count++] = *wanted;
    struct plan_class *class = &plan->classes[found];
    *offset = class->page_bytes;
    class->page_bytes += class->layout.layer_bytes;
    class->layers++;
    return found;
}

static struct kv_layout layout_of(const struct layer *layer, enum dtype k, enum dtype v)
{
    return layer->latent ? kv_layout_make_latent(k, layer->head_dim, layer->latent)
                         : kv_layout_make(k, v, layer->kv_heads, layer->head_dim, layer->head_dim);
}

// Puts a layer into the class of its kind, and its sink pages, if it has any, into another one.
static bool place_layer(struct plan *plan, int index, const struct kv_formats *formats, int sink_pages)
{
    const struct layer *layer = &plan->model->layer[index];
    struct plan_layer *placed = &plan->layer[index];
    enum dtype wide = plan->model->config.kv_dtype;
    struct plan_class class = { .kind = { .page_tokens = KV_PAGE_TOKENS, .window = layer->window, .begin = sink_pages },
                                .layout = layout_of(layer, formats->k, formats->v) };
    struct plan_class sink = { .kind = class.kind, .layout = layout_of(layer, wide, wide) };
    sink.kind.begin = 0;
    sink.kind.end = sink_pages;
    placed->class_index = join_class(plan, &class, &placed->offset);
    if (sink_pages)
        placed->sink_class = join_class(plan, &sink, &placed->sink_offset);
    return placed->class_index != PLAN_NO_CLASS && (!sink_pages || placed->sink_class != PLAN_NO_CLASS);
}

// All states are one class, whatever their layers' sizes: a sequence moves them on together.
static bool place_states(struct plan *plan, int state_tokens)
{
    const struct model *model = plan->model;
    struct plan_class class = { 0 };
    for (int i = 0; i < model->config.layers; i++)
        if (model->layer[i].kind == LAYER_STATE) {
            plan->layer[i].class_index = plan->class_count;
            plan->layer[i].offset = class.page_bytes;
            class.page_bytes += model->layer[i].state.layer_bytes;
            class.layers++;
        }
    if (!class.layers)
        return true;
    if (plan->class_count == KV_CLASSES_MAX)
        return false;
    class.kind = kv_table_states(state_tokens ? state_tokens : choose_state_tokens(plan, class.page_bytes));
    plan->classes[plan->class_count++] = class;
    return true;
}

// Why these formats cannot hold what a layer keeps, or NULL.
static const char *layer_misfit(struct plan *plan, const struct layer *layer, const struct kv_formats *formats)
{
    if (layer->kind != LAYER_ATTENTION)
        return NULL;
    bool wider = formats->k == DTYPE_FP8_E5M2 || formats->v == DTYPE_FP8_E5M2;
    const struct tensor *scale = layer->k_scale ? layer->k_scale : layer->v_scale;
    if (wider && scale)
        return arena_format(&plan->arena, "the checkpoint's scales (%s) are for fp8_e4m3", scale->name);
    if (!layer->latent) {
        const char *misfit = kv_format_misfit(&plan->arena, formats->k, layer->head_dim);
        return misfit ? misfit : kv_format_misfit(&plan->arena, formats->v, layer->head_dim);
    }
    if (formats->k != formats->v)
        return "a latent is key and value at once and has one format";
    return kv_latent_misfit(&plan->arena, formats->k, layer->head_dim, layer->latent);
}

// Formats that cannot hold a layer's vectors: all such layers are named, with the first one's reason.
static bool check_sizes(struct plan *plan, const struct kv_formats *formats, const char *flag, struct error *err)
{
    int layers = plan->model->config.layers;
    bool *misfits = ARENA_NEW(&plan->arena, bool, layers);
    const char *reason = NULL;
    for (int i = 0; i < layers; i++) {
        const char *misfit = layer_misfit(plan, &plan->model->layer[i], &formats[i]);
        misfits[i] = misfit;
        reason = reason ? reason : misfit;
    }
    if (!reason)
        return true;
    plan->refusal.layers = decide_layer_list(plan, misfits);
    return refuse(plan, err, "--kv-cache-dtype", flag,
                  arena_format(&plan->arena, "layers %s: %s", plan->refusal.layers, reason));
}

// Where a layer's format comes from, in words for people.
static const char *origin_of(const struct plan *plan, const struct plan_options *options, int layer, bool skipped)
{
    const char *flag = options->user.kv_cache_dtype;
    const struct model *model = plan->model;
    if (skipped)
        return "--kv-cache-dtype-skip-layers";
    if (options->user.kv_plan)
        return "--kv-plan";
    if (flag && strcmp(flag, "auto"))
        return "--kv-cache-dtype";
    return model->layer[layer].kv_dtype == model->config.kv_dtype ? "auto: the model's own type"
                                                                  : "auto: the checkpoint declares it";
}

// Reads what the flags say for each layer; a skipped one keeps the model's 16-bit type.
static bool read_flags(struct plan *plan, const struct plan_options *options, struct kv_formats *formats,
                       struct error *err)
{
    const struct model *model = plan->model;
    int layers = model->config.layers;
    const char *flag = options->user.kv_cache_dtype ? options->user.kv_cache_dtype : "auto";
    enum dtype *automatic = ARENA_NEW(&plan->arena, enum dtype, layers);
    bool *skipped = ARENA_NEW(&plan->arena, bool, layers), *windowed = ARENA_NEW(&plan->arena, bool, layers);
    bool *cached = ARENA_NEW(&plan->arena, bool, layers);
    for (int i = 0; i < layers; i++) {
        cached[i] = model->layer[i].kind == LAYER_ATTENTION;
        automatic[i] = model->layer[i].kv_dtype;
        windowed[i] = model->layer[i].window;
    }
    if (!kv_flag_parse(flag, layers, automatic, cached, formats, err))
        return err->usage ? false
                          : refuse(plan, err, "--kv-cache-dtype", flag, arena_format(&plan->arena, "%s", err->text));
    if (model->kv_declared_unknown && strstr(flag, "auto"))
        return refuse(plan, err, "--kv-cache-dtype", flag, model->kv_declared_unknown);
    if (!kv_skip_parse(options->user.kv_cache_dtype_skip_layers, layers, windowed, skipped, err))
        return false;
    for (int i = 0; i < layers; i++) {
        plan->layer[i].format_origin = origin_of(plan, options, i, skipped[i]);
        if (skipped[i])
            formats[i] = (struct kv_formats){ model->config.kv_dtype, model->config.kv_dtype };
    }
    return check_sizes(plan, formats, flag, err);
}

static bool read_scale(struct plan *plan, const char *word, struct error *err)
{
    plan->scale_search = !word || !strcmp(word, "search");
    return plan->scale_search || !strcmp(word, "amax")
        || fail_usage(err, "--kv-scale: \"%.40s\" is not a way to choose scales; there are search amax", word);
}

static bool read_activations(struct plan *plan, const char *word, struct error *err)
{
    plan->int8_activations = word && !strcmp(word, "int8");
    return !word || plan->int8_activations || !strcmp(word, "exact")
        || fail_usage(err, "--activations: \"%.40s\" is not a precision of activations; there are exact int8", word);
}

bool decide_formats(struct plan *plan, const struct plan_options *options, struct error *err)
{
    int layers = plan->model->config.layers;
    struct kv_formats *formats = ARENA_NEW(&plan->arena, struct kv_formats, layers);
    int *sinks = ARENA_NEW(&plan->arena, int, layers);
    plan->layer = ARENA_NEW(&plan->arena, struct plan_layer, layers);
    if (!read_flags(plan, options, formats, err) || !read_scale(plan, options->user.kv_scale, err)
        || !read_activations(plan, options->user.activations, err) || !decide_sinks(plan, options, formats, sinks, err))
        return false;
    bool placed = true;
    for (int i = 0; i < layers; i++) {
        plan->layer[i].class_index = plan->layer[i].sink_class = PLAN_NO_CLASS;
        if (plan->model->layer[i].kind == LAYER_ATTENTION)
            placed = placed && place_layer(plan, i, &formats[i], sinks[i]);
    }
    if (placed && place_states(plan, options->user.mamba_block_size))
        return true;
    return fail_usage(err, "--kv-cache-dtype: the layers fall into more than %d kinds of pages; use fewer",
                      KV_CLASSES_MAX);
}
