// SPDX-License-Identifier: Apache-2.0
// model/kv_scales.c: a calibrated checkpoint's KV cache scales (k_scale, v_scale), under their many names. With k_scale
// alone (or the older kv_scale) values use it too; with v_scale alone the scale of keys is 1. The engine uses them for
// cache formats with a layer scale.
#include <stdio.h>
#include <string.h>

#include "model/tensor_lookup_internal.h"

// '?' stands for k or v.
static const char *const names[] = {
    "self_attn.?_proj.?_scale", "self_attn.?_scale", "self_attn.attn.?_scale",  "self_attn.qkv_proj.?_scale",
    "mixer.?_proj.?_scale",     "mixer.?_scale",     "self_attn.?_cache.scale", "self_attn.?_proj.output_scale",
};
static const char *const names_of_both[] = { "self_attn.kv_scale", "self_attn.attn.kv_scale" };

static const struct tensor *look_up(struct graph *graph, int layer, const char *name, char side)
{
    char full[FIND_NAME_BYTES_MAX];
    const struct checkpoint *checkpoint = graph->source.checkpoint;
    snprintf(full, sizeof full, "%slayers.%d.%s", graph->prefix, layer, name);
    for (char *at = full; (at = strchr(at, '?'));)
        *at = side;
    const struct tensor *tensor = checkpoint_find(checkpoint, full);
    if (!tensor)
        return NULL;
    graph->find->used[tensor - checkpoint->tensors] = true;
    int64_t values = tensor_values(tensor);
    if (!(LAYOUT_FLOATS >> tensor->dtype & 1) || (values != 1 && values != graph->model->layer[layer].kv_heads)) {
        graph->failed = true;
        fail(graph->err, "tensor %s is %s of %lld values; a scale of the cache is one float, or one for each head",
             full, dtype_word(tensor->dtype), (long long)values);
    }
    return tensor;
}

static const struct tensor *look_up_any(struct graph *graph, int layer, const char *const *list, size_t count,
                                        char side)
{
    const struct tensor *found = NULL;
    for (size_t i = 0; i < count && !found; i++)
        found = look_up(graph, layer, list[i], side);
    return found;
}

// True if the checkpoint declares a cache format with scales for this layer.
static bool is_declared(const struct model *model, const struct layer *layer)
{
    enum dtype_scale scale = dtype_table[layer->kv_dtype].scale;
    return layer->kv_dtype != model->config.kv_dtype && (scale == DTYPE_SCALE_LAYER || scale == DTYPE_SCALE_BLOCK);
}

void find_kv_scales(struct graph *graph)
{
    struct model *model = graph->model;
    const size_t each = sizeof names / sizeof *names, both = sizeof names_of_both / sizeof *names_of_both;
    const char *k_alone = NULL, *v_alone = NULL;
    int k_alones = 0, v_alones = 0, without = 0;
    if (graph->source.checkpoint->gguf || model->imagined)
        return;
    for (int i = 0; i < model->config.layers && !graph->failed; i++) {
        struct layer *layer = &model->layer[i];
        const struct tensor *k = look_up_any(graph, i, names, each, 'k'), *v = look_up_any(graph, i, names, each, 'v');
        const struct tensor *shared = look_up_any(graph, i, names_of_both, both, 0);
        layer->k_scale = k ? k : shared;
        layer->v_scale = v ? v : shared ? shared : k;
        if (k && !v && !shared && !k_alones++)
            k_alone = k->name;
        if (v && !k && !shared && !v_alones++)
            v_alone = v->name;
        without += layer->kind == LAYER_ATTENTION && !k && !v && !shared && is_declared(model, layer);
    }
    if (k_alone)
        model_warn(model, "%s is there without a scale for values, in %d layers: it serves both", k_alone, k_alones);
    if (v_alone)
        model_warn(model, "%s is there without a scale for keys, in %d layers: keys are scaled by 1", v_alone,
                   v_alones);
    if (without)
        model_warn(model,
                   "the checkpoint declares a quantised cache and has no scales (k_scale, v_scale) for it in %d "
                   "layers: 1 is used",
                   without);
}
