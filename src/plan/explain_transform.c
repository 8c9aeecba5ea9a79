// SPDX-License-Identifier: Apache-2.0
// plan/explain_transform.c: what keys are stored as, and what was measured to choose it.
#include "plan/explain_parts.h"

enum { UNDECIDED = KV_TRANSFORMS };

// The transform of a layer's keys, or UNDECIDED.
static int transform_of(const struct plan *plan, int layer)
{
    return plan->layer[layer].undecided ? UNDECIDED : plan->layer[layer].transform;
}

const char *explain_transform(const struct plan *plan, int layer)
{
    return plan->layer[layer].undecided ? "auto" : kv_transform_word(plan->layer[layer].transform);
}

static bool is_stored_as(const void *context, int layer)
{
    const struct explain_which *transform = context;
    const struct plan *plan = transform->plan;
    return plan->model->layer[layer].kind == LAYER_ATTENTION && transform_of(plan, layer) == transform->which;
}

// How far attention strays with the transforms that were chosen, and without any: the mean over layers.
static void add_errors(const struct plan *plan, struct strbuf *out)
{
    double with = 0, without = 0;
    int count = 0;
    for (int i = 0; i < plan->model->config.layers; i++)
        if (plan->layer[i].calibrated) {
            with += (double)plan->calibration->layer[i].error[plan->layer[i].transform];
            without += (double)plan->calibration->layer[i].error[0];
            count++;
        }
    if (count)
        strbuf_add_format(out, "; measured attention error %.2g (%.2g untransformed)", with / count, without / count);
}

void explain_add_transform(const struct plan *plan, struct strbuf *out)
{
    const int layers = plan->model->config.layers;
    bool any = false;
    for (int transform = KV_TRANSFORMS - 1; transform > 0; transform--) {
        struct strbuf before = { 0 };
        strbuf_add_format(&before, "%s%s in layers ", any ? "; " : "transform ", kv_transform_word(transform));
        any |= explain_add_layers(out, layers, before.data, is_stored_as, &(struct explain_which){ plan, transform });
        strbuf_free(&before);
    }
    if (any) {
        add_errors(plan, out);
        strbuf_add_byte(out, '\n');
    }
    if (explain_add_layers(out, layers, "transform of keys in layers ", is_stored_as,
                           &(struct explain_which){ plan, UNDECIDED }))
        strbuf_add_text(out, ": chosen by measuring when the model is first loaded\n");
}

void explain_add_short_transform(const struct plan *plan, struct strbuf *out)
{
    int count = 0, all = 0;
    for (int i = 0; i < plan->model->config.layers; i++) {
        all += plan->model->layer[i].kind == LAYER_ATTENTION;
        count += plan->layer[i].transform != 0;
    }
    if (count)
        strbuf_add_format(out, " (keys transformed in %d of %d layers)", count, all);
}

json_t *explain_json_errors(const struct plan *plan, int layer)
{
    json_t *errors = json_object();
    for (int i = 0; i < KV_TRANSFORMS && plan->layer[layer].calibrated; i++)
        json_object_set_new(errors, kv_transform_word(i), json_real((double)plan->calibration->layer[layer].error[i]));
    return errors;
}
