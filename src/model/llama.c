// SPDX-License-Identifier: Apache-2.0
// model/llama.c: Llama 2 and 3, SmolLM2 and their kin, and GGUFs of Mixtral; Mistral is the same with a window on every
// layer.
#include "model/architecture.h"

static void write_layer(struct graph *graph) { graph_plain_layer(graph, false); }

static bool describe(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    int window = 0;
    config->activation = ACT_SILU;
    config->rope_interleaved = graph->source.checkpoint->gguf; // its q and k rows were reordered for that
    return architecture_check_activation(graph, "hidden_act", "silu") && architecture_read_experts(graph, NULL, NULL)
        && source_int(&graph->source, NULL, "attention.sliding_window", 0, config->context, &window, graph->err)
        && architecture_set_windows(graph, window, architecture_every_layer) && architecture_set_rope(graph)
        && graph_write(graph, config->experts.count ? moe_write_mixtral_layer : write_layer);
}

static bool describe_mistral(struct graph *graph)
{
    int window = 0;
    graph->model->config.activation = ACT_SILU;
    return architecture_check_activation(graph, "hidden_act", "silu")
        && source_int(&graph->source, "sliding_window", NULL, 0, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window, architecture_every_layer) && architecture_set_rope(graph)
        && graph_write(graph, write_layer);
}

const struct architecture llama_architecture = {
    .name = "llama", .model_types = { "llama" }, .gguf = "llama", .describe = describe
};
const struct architecture mistral_architecture = { .name = "mistral",
                                                   .model_types = { "mistral" },
                                                   .describe = describe_mistral };
