// SPDX-License-Identifier: Apache-2.0
// model/qwen.c: Qwen 2 (biases on q, k and v) and Qwen 3 (q and k normalised per head instead).
#include "model/architecture.h"

static void write_qwen2_layer(struct graph *graph) { graph_plain_layer(graph, false); }

static void write_qwen3_layer(struct graph *graph) { graph_plain_layer(graph, true); }

// Older configs: with use_sliding_window, layers from max_window_layers on have the window.
static bool windowed(const struct graph *graph, int layer)
{
    const json_t *first = json_object_get(graph->source.json, "max_window_layers");
    return layer >= (json_is_integer(first) ? json_integer_value(first) : 28);
}

static bool describe_qwen(struct graph *graph, void (*write_layer)(struct graph *graph))
{
    bool use_window = false;
    int window = 0;
    graph->model->config.activation = ACT_SILU;
    return architecture_check_activation(graph, "hidden_act", "silu")
        && source_bool(&graph->source, "use_sliding_window", &use_window, graph->err)
        && source_int(&graph->source, use_window ? "sliding_window" : NULL, NULL, 0, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window, windowed) && architecture_set_rope(graph)
        && graph_write(graph, write_layer);
}

static bool describe_qwen2(struct graph *graph)
{
    graph->qkv_bias = true;
    return describe_qwen(graph, write_qwen2_layer);
}

static bool describe_qwen3(struct graph *graph) { return describe_qwen(graph, write_qwen3_layer); }

const struct architecture qwen2_architecture = {
    .name = "qwen2", .model_types = { "qwen2" }, .gguf = "qwen2", .describe = describe_qwen2
};
const struct architecture qwen3_architecture = { .name = "qwen3",
                                                 .model_types = { "qwen3" },
                                                 .gguf = "qwen3",
                                                 .defaults = { .head_dim = 128 },
                                                 .describe = describe_qwen3 };
