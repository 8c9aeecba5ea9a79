// SPDX-License-Identifier: Apache-2.0
// plan/explain_checkpoint.c: the checkpoint itself, as JSON: weights whose layout in the files differs from what
// kernels read, scales of the cache, unused tensors, and warnings.
#include "base/map.h"
#include "model/tensor_source.h"
#include "plan/explain_parts.h"

enum { STORED_MAX = 64 };

// Matrices that lie in one form and are read in one format.
struct stored_kind {
    const char *form, *why;
    enum dtype dtype;
    size_t bytes; // as they are read
};

static void count_stored(struct stored_kind *kinds, int *count, const struct tensor *tensor)
{
    int i = 0;
    while (i < *count && (kinds[i].form != tensor->source->label || kinds[i].dtype != tensor->dtype))
        i++;
    if (i == STORED_MAX)
        return;
    if (i == *count)
        kinds[(*count)++] = (struct stored_kind){ tensor->source->label, tensor->source->why, tensor->dtype, 0 };
    kinds[i].bytes += tensor->bytes;
}

static int list_stored(const struct plan *plan, struct stored_kind kinds[STORED_MAX])
{
    struct map seen = { 0 };
    int count = 0;
    for (int i = 0; i < plan->model->op_count; i++)
        for (int j = 0; j < plan->model->ops[i].matrices; j++) {
            const struct tensor *tensor = plan->model->ops[i].matrix[j].tensor;
            int64_t ignored;
            if (!tensor->source || !tensor->source->label || map_get(&seen, bytes_of(tensor->name), &ignored))
                continue;
            map_put(&seen, bytes_of(tensor->name), 1);
            count_stored(kinds, &count, tensor);
        }
    map_free(&seen);
    return count;
}

// A side of the cache whose format has a scale for a layer.
static bool uses_scale(const struct kv_side *side)
{
    enum dtype_scale scale = dtype_table[side->dtype].scale;
    return scale == DTYPE_SCALE_LAYER || scale == DTYPE_SCALE_BLOCK;
}

// Layers with scales in the checkpoint, and those of them whose cache has no use for them.
static int count_scales(const struct plan *plan, int *idle)
{
    int count = 0;
    *idle = 0;
    for (int i = 0; i < plan->model->config.layers; i++) {
        const struct layer *layer = &plan->model->layer[i];
        const struct kv_layout *layout = &explain_class_of(plan, i)->layout;
        if (!layer->k_scale && !layer->v_scale)
            continue;
        count++;
        *idle += !uses_scale(&layout->k) && !uses_scale(&layout->v);
    }
    return count;
}

json_t *explain_json_stored(const struct plan *plan)
{
    struct stored_kind kinds[STORED_MAX];
    int count = list_stored(plan, kinds);
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:I, s:s?}", "form", kinds[i].form, "read_as", dtype_word(kinds[i].dtype), "bytes",
                      (json_int_t)kinds[i].bytes, "why", kinds[i].why));
    return list;
}

json_t *explain_json_checkpoint(const struct plan *plan)
{
    int idle, scaled = count_scales(plan, &idle);
    json_t *warnings = json_array();
    for (int i = 0; i < plan->model->warning_count; i++)
        json_array_append_new(warnings, json_string(plan->model->warnings[i]));
    if (plan->calibration && plan->calibration->warning)
        json_array_append_new(warnings, json_string(plan->calibration->warning));
    return json_pack("{s:i, s:i, s:s?, s:o}", "cache_scales", scaled, "cache_scales_unused", idle, "unused_tensors",
                     plan->model->unused, "warnings", warnings);
}
