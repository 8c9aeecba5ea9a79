// SPDX-License-Identifier: Apache-2.0
// model/phi.c: Phi 3 and Phi 4: a plain layer whose q, k and v are one matrix, as are gate and up.
#include "model/architecture.h"

static void write_layer(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    int kv_width = config->kv_heads * config->head_dim;
    graph_norm(graph, BUFFER_X, BUFFER_H, W_ATTENTION_NORM);
    graph_fused(graph,
                (struct graph_output[]){ { BUFFER_Q, W_QKV, config->heads * config->head_dim },
                                         { BUFFER_K, W_QKV, kv_width },
                                         { BUFFER_V, W_QKV, kv_width } },
                3);
    graph_attention(graph);
    graph_output(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);

    graph_norm(graph, BUFFER_X, BUFFER_H, W_FFN_NORM);
    graph_fused(graph,
                (struct graph_output[]){ { BUFFER_GATE, W_GATE_UP, config->feed_forward },
                                         { BUFFER_UP, W_GATE_UP, config->feed_forward } },
                2);
    graph_act_mul(graph);
    graph_linear(graph, BUFFER_GATE, &(struct graph_output){ BUFFER_H, W_DOWN, config->hidden }, 1);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

static bool describe(struct graph *graph)
{
    int window = 0;
    graph->model->config.activation = ACT_SILU;
    return architecture_check_activation(graph, "hidden_act", "silu")
        && source_int(&graph->source, "sliding_window", "attention.sliding_window", 0, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window < graph->model->config.context ? window : 0, architecture_every_layer)
        && architecture_set_rope(graph) && graph_write(graph, write_layer);
}

const struct architecture phi3_architecture = {
    .name = "phi3", .model_types = { "phi3" }, .gguf = "phi3", .describe = describe
};
