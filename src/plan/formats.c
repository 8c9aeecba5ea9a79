// SPDX-License-Identifier: Apache-2.0
// plan/formats.c: each layer's K and V format, from the flags, the checkpoint's own declaration and the skip list, and
// the classes of layers that follow. Every decision reads the layer's own spec.
#include <string.h>

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
        if (class->window == wanted->window && class->layout.latent == wanted->layout.latent
            && same_side(&class->layout.k, &wanted->layout.k)
            && same_side(&class->layout.v, &wanted->layout.v))
            return i;
    }
    return -1;
}

// Puts a layer into the class of its kind, which may be new; false when there are too many.
static bool place_layer(struct plan *plan, int index, const struct kv_formats *formats)
{
    const struct layer *layer = &plan->model->layer[index];
    struct plan_class wanted = {
        .window = layer->window,
        .layout = layer->latent
                    ? kv_layout_make_latent(formats->k, layer->head_dim, layer->latent)
                    : kv_layout_make(formats->k, formats->v, layer->kv_heads, layer->head_dim, layer->head_dim),
    };
    int found = find_class(plan, &wanted);
    if (found < 0 && plan->class_count == KV_CLASSES_MAX)
        return false;
    if (found < 0)
        plan->classes[found = plan->class_count++] = wanted;
    struct plan_class *class = &plan->classes[found];
    plan->layer[index] = (struct plan_layer){ .class_index = found, .offset = class->page_bytes };
    class->page_bytes += class->layout.layer_bytes;
    class->layers++;
    return true;
}

// Why these formats cannot hold what a layer keeps, or NULL.
static const char *layer_misfit(struct plan *plan, const struct layer *layer, const struct kv_formats *formats)
{
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

// What the flags say for each layer; a skipped one keeps the model's 16-bit type.
static bool read_flags(struct plan *plan, const struct plan_options *options, struct kv_formats *formats,
                       struct error *err)
{
    const struct model *model = plan->model;
    int layers = model->config.layers;
    const char *flag = options->kv_cache_dtype ? options->kv_cache_dtype : "auto";
    enum dtype *automatic = ARENA_NEW(&plan->arena, enum dtype, layers);
    bool *skipped = ARENA_NEW(&plan->arena, bool, layers), *windowed = ARENA_NEW(&plan->arena, bool, layers);
    for (int i = 0; i < layers; i++) {
        automatic[i] = model->layer[i].kv_dtype;
        windowed[i] = model->layer[i].window;
    }
    if (!kv_flag_parse(flag, layers, automatic, formats, err))
        return err->usage ? false
                          : refuse(plan, err, "--kv-cache-dtype", flag, arena_format(&plan->arena, "%s", err->text));
    if (model->kv_declared_unknown && strstr(flag, "auto"))
        return refuse(plan, err, "--kv-cache-dtype", flag, model->kv_declared_unknown);
    if (!kv_skip_parse(options->kv_skip_layers, layers, windowed, skipped, err))
        return false;
    for (int i = 0; i < layers; i++)
        if (skipped[i])
            formats[i] = (struct kv_formats){ model->config.kv_dtype, model->config.kv_dtype };
    return check_sizes(plan, formats, flag, err);
}

bool decide_formats(struct plan *plan, const struct plan_options *options, struct error *err)
{
    int layers = plan->model->config.layers;
    struct kv_formats *formats = ARENA_NEW(&plan->arena, struct kv_formats, layers);
    plan->layer = ARENA_NEW(&plan->arena, struct plan_layer, layers);
    if (!read_flags(plan, options, formats, err))
        return false;
    for (int i = 0; i < layers; i++)
        if (!place_layer(plan, i, &formats[i]))
            return fail_usage(err, "--kv-cache-dtype: the layers fall into more than %d kinds of pages; use fewer",
                              KV_CLASSES_MAX);
    return true;
}
