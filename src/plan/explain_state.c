// SPDX-License-Identifier: Apache-2.0
// plan/explain_state.c: layers that keep a state, or nothing, in words.
#include "plan/explain_parts.h"

static bool is_of_kind(const void *context, int layer)
{
    const struct explain_which *kind = context;
    return (int)kind->plan->model->layer[layer].kind == kind->which;
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
    const int layers = plan->model->config.layers;
    const struct explain_which state = { plan, LAYER_STATE }, plain = { plan, LAYER_PLAIN };
    if (states) {
        explain_add_layers(out, layers, "states    layers ", is_of_kind, &state);
        strbuf_add_format(out, ": recurrent, float32, %s per sequence, one kept every %d tokens",
                          explain_size(states->page_bytes).text, states->kind.page_tokens);
        add_kernels(plan, out);
        strbuf_add_byte(out, '\n');
    }
    if (explain_add_layers(out, layers, "stateless layers ", is_of_kind, &plain))
        strbuf_add_text(out, " have neither KV cache nor state\n");
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
