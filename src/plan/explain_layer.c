// SPDX-License-Identifier: Apache-2.0
// plan/explain_layer.c: a layer of the plan as JSON: its attention, its formats and how it stores keys and values.
#include "plan/explain_parts.h"

const struct plan_class *explain_class_of(const struct plan *plan, int layer)
{
    return &plan->classes[plan->layer[layer].class_index];
}

const char *explain_attention(struct strbuf *out, const struct plan_class *class)
{
    int latent = class->layout.v.dim, rotary = class->layout.k.dim - latent;
    if (class->kind.state)
        strbuf_add_text(out, "state");
    else if (class->layout.latent)
        strbuf_add_format(out, "latent %d+%d", latent, rotary);
    else
        strbuf_add_format(out, class->kind.window ? "window %d" : "full", class->kind.window);
    return out->data;
}

// Bits of the cache per number, scales included.
static double side_bits(const struct kv_side *side)
{
    return 8.0 * (double)(side->data_bytes + side->scale_bytes) / side->dim;
}

// How the scales of nvfp4 are chosen; NULL for formats that leave no choice.
static const char *scale_of(const struct plan *plan, const struct kv_layout *layout)
{
    bool leaves_choice = layout->k.dtype == DTYPE_NVFP4 || layout->v.dtype == DTYPE_NVFP4;
    return !leaves_choice ? NULL : plan->scale_search ? "search" : "amax";
}

static int sink_pages_of(const struct plan *plan, int layer)
{
    int index = plan->layer[layer].sink_class;
    return index == PLAN_NO_CLASS ? 0 : plan->classes[index].kind.end;
}

// Errors of attention by transform, where they were measured.
static json_t *json_of_errors(const struct plan *plan, int layer)
{
    json_t *errors = json_object();
    for (int i = 0; i < KV_TRANSFORMS && plan->layer[layer].calibrated; i++)
        json_object_set_new(errors, kv_transform_word(i), json_real((double)plan->calibration->layer[layer].error[i]));
    return errors;
}

static json_t *json_of_attention(const struct plan *plan, int index)
{
    static const enum op_kind kinds[] = { OP_ATTENTION, OP_KV_WRITE, OP_LINEAR };
    const struct plan_class *class = explain_class_of(plan, index);
    const struct plan_layer *layer = &plan->layer[index];
    const struct kv_side *k = &class->layout.k, *v = &class->layout.v;
    bool latent = class->layout.latent; // then V takes no bits of its own
    json_t *out = json_pack(
        "{s:i, s:s, s:o, s:s, s:s, s:s, s:f, s:f, s:s, s:I, s:o, s:s?, s:o, s:i}", "index", index, "attention",
        latent                   ? "mla"
            : class->kind.window ? "window"
                                 : "full",
        "window", class->kind.window ? json_integer(class->kind.window) : json_null(), "k", dtype_word(k->dtype), "v",
        dtype_word(v->dtype), "format_origin", layer->format_origin, "k_bits", side_bits(k), "v_bits",
        latent ? 0.0 : side_bits(v), "transform", layer->undecided ? "auto" : kv_transform_word(layer->transform),
        "bytes_per_token", (json_int_t)plan_layer_token_bytes(plan, index), "kernels",
        explain_json_layer_rows(plan, index, kinds, sizeof kinds / sizeof *kinds), "scale",
        scale_of(plan, &class->layout), "transform_errors", json_of_errors(plan, index), "sink_pages",
        sink_pages_of(plan, index));
    if (latent)
        json_object_set_new(out, "latent", json_pack("[i, i]", v->dim, k->dim - v->dim));
    return out;
}

static json_t *json_of_state(const struct plan *plan, int index)
{
    static const enum op_kind kinds[] = { OP_CONV, OP_SSM_SCAN, OP_GATED_DELTA, OP_LINEAR };
    const struct layer *layer = &plan->model->layer[index];
    json_t *kernels = explain_json_layer_rows(plan, index, kinds, sizeof kinds / sizeof *kinds);
    return json_pack("{s:i, s:s, s:n, s:n, s:n, s:s, s:i, s:I, s:o}", "index", index, "attention",
                     layer->kind == LAYER_STATE ? "state" : "none", "window", "k", "v", "transform", "none",
                     "bytes_per_token", 0, "state_bytes", (json_int_t)layer->state.layer_bytes, "kernels", kernels);
}

json_t *explain_json_layer(const struct plan *plan, int index)
{
    bool has_attention = plan->model->layer[index].kind == LAYER_ATTENTION;
    return (has_attention ? json_of_attention : json_of_state)(plan, index);
}
