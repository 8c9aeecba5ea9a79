// SPDX-License-Identifier: Apache-2.0
// model/olmo.c: OLMo 2: what a block gives back is normed, not what it reads; q and k are normed over all heads at
// once.
#include "model/architecture.h"

static void write_layer(struct graph *graph)
{
    const int *width = graph->model->buffer_width;
    graph_copy(graph);
    graph_qkv(graph);
    graph_latent_norm(graph, BUFFER_Q, W_Q_NORM, width[BUFFER_Q]);
    graph_latent_norm(graph, BUFFER_K, W_K_NORM, width[BUFFER_K]);
    graph_attention(graph);
    graph_output(graph);
    graph_norm(graph, BUFFER_H, BUFFER_H, W_POST_ATTENTION_NORM);
    graph_add(graph, BUFFER_X, BUFFER_H);

    graph_copy(graph);
    graph_feed_forward(graph);
    graph_norm(graph, BUFFER_H, BUFFER_H, W_POST_FFN_NORM);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

// OLMo 3 is another architecture, with windows, but its GGUFs have the same name.
static bool check_no_window(struct graph *graph)
{
    int window = 0;
    return source_int(&graph->source, NULL, "attention.sliding_window", 0, INT32_MAX, &window, graph->err)
        && (!window
            || fail(graph->err,
                    "gguf: attention has a window of %d tokens, as OLMo 3 has, which nibble does "
                    "not run; OLMo 2 has none",
                    window));
}

static bool describe(struct graph *graph)
{
    graph->model->config.activation = ACT_SILU;
    return architecture_check_activation(graph, "hidden_act", "silu") && check_no_window(graph)
        && architecture_set_windows(graph, 0, architecture_every_layer) && architecture_set_rope(graph)
        && graph_write(graph, write_layer);
}

const struct architecture olmo2_architecture = {
    .name = "olmo2", .model_types = { "olmo2" }, .gguf = "olmo2", .describe = describe
};
