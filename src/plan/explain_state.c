// SPDX-License-Identifier: Apache-2.0
// plan/explain_state.c: layers that keep a state, or nothing, in words.
#include "plan/explain_parts.h"

// "0, 2-4" of the layers of a kind.
static void add_layers(const struct plan *plan, enum layer_kind kind, struct strbuf *out)
{
    const struct layer *layers = plan->model->layer;
    const char *separator = "";
    for (int first = 0, last; first < plan->model->config.layers; first = last + 1) {
        last = first;
        if (layers[first].kind != kind)
            continue;
        while (last + 1 < plan->model->config.layers && layers[last + 1].kind == kind)
            last++;
        strbuf_add_text(out, separator);
        explain_add_range(out, first, last);
        separator = ", ";
    }
}

static int count_layers(const struct plan *plan, enum layer_kind kind)
{
    int count = 0;
    for (int i = 0; i < plan->model->config.layers; i++)
        count += plan->model->layer[i].kind == kind;
    return count;
}

// Kernels of the ops that move a state on, of the first layer that has one.
static void add_kernels(const struct plan *plan, struct strbuf *out)
{
    static const enum op_kind kinds[] = { OP_CONV, OP_SSM_SCAN, OP_GATED_DELTA };
    int layer = 0;
    while (plan->model->layer[layer].kind != LAYER_STATE)
        layer++;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int op = explain_op_of(plan, layer, kinds[i]);
        if (op < 0)
            continue;
        struct explain_rows rows = explain_rows_of(plan, op, 0);
        strbuf_add_text(out, "; ");
        explain_add_rows(out, &rows);
    }
}

void explain_add_states(const struct plan *plan, struct strbuf *out)
{
    const struct plan_class *states = plan_states(plan);
    if (states) {
        strbuf_add_text(out, "states    layers ");
        add_layers(plan, LAYER_STATE, out);
        strbuf_add_text(out, ": recurrent, float32, ");
        explain_add_size(out, states->page_bytes);
        strbuf_add_format(out, " per sequence, one kept every %d tokens", states->kind.page_tokens);
        add_kernels(plan, out);
        strbuf_add_byte(out, '\n');
    }
    if (count_layers(plan, LAYER_PLAIN)) {
        strbuf_add_text(out, "stateless layers ");
        add_layers(plan, LAYER_PLAIN, out);
        strbuf_add_text(out, " have neither KV cache nor state\n");
    }
}

json_t *explain_json_recurrent(const struct plan *plan, int index)
{
    static const enum op_kind kinds[] = { OP_CONV, OP_SSM_SCAN, OP_GATED_DELTA, OP_LINEAR };
    const struct layer *layer = &plan->model->layer[index];
    json_t *kernels = explain_json_layer_rows(plan, index, kinds, sizeof kinds / sizeof *kinds);
    return json_pack("{s:i, s:s, s:n, s:n, s:n, s:s, s:i, s:I, s:o}", "index", index, "attention",
                     layer->kind == LAYER_STATE ? "state" : "none", "window", "k", "v", "transform", "none",
                     "bytes_per_token", 0, "state_bytes", (json_int_t)layer->state.layer_bytes, "kernels", kernels);
}
