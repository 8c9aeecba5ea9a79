// SPDX-License-Identifier: Apache-2.0
// model/smollm.c: SmolLM 3: a plain layer; every fourth one has no rotary embedding (NoPE).
#include "model/architecture.h"

enum { NOPE_INTERVAL = 4 };

static void write_layer(struct graph *graph) { graph_plain_layer(graph, false); }

// config.json lists for each layer whether it has RoPE, or gives the interval of layers without; a GGUF has neither.
static bool drop_rope(struct graph *graph)
{
    struct model *model = graph->model;
    const json_t *list = graph->source.json ? json_object_get(graph->source.json, "no_rope_layers") : NULL;
    int interval = NOPE_INTERVAL, layers = model->config.layers;
    if (!source_int(&graph->source, "no_rope_layer_interval", NULL, 1, INT32_MAX, &interval, graph->err))
        return false;
    if (json_is_array(list) && json_array_size(list) != (size_t)layers)
        return fail(graph->err, "config.json: no_rope_layers has %zu entries for %d layers", json_array_size(list),
                    layers);
    for (int i = 0; i < layers; i++) {
        const json_t *rotates = json_array_get(list, (size_t)i);
        if (rotates ? json_integer_value(rotates) == 0 : (i + 1) % interval == 0)
            model->layer[i].frequencies = model->layer[i].short_frequencies = NULL;
    }
    return true;
}

// With use_sliding_window, layers without RoPE have the window; layer_types says the same.
static bool windowed(const struct graph *graph, int layer) { return !graph->model->layer[layer].frequencies; }

static bool describe(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    bool use_window = false;
    int window = 0;
    config->activation = ACT_SILU;
    config->rope_interleaved = graph->source.checkpoint->gguf; // its q and k rows were reordered for that
    return architecture_check_activation(graph, "hidden_act", "silu")
        && source_bool(&graph->source, "use_sliding_window", &use_window, graph->err)
        && source_int(&graph->source, use_window ? "sliding_window" : NULL, NULL, 0, INT32_MAX, &window, graph->err)
        && architecture_set_rope(graph) && drop_rope(graph) && architecture_set_windows(graph, window, windowed)
        && graph_write(graph, write_layer);
}

const struct architecture smollm3_architecture = { .name = "smollm3",
                                                   .model_types = { "smollm3" },
                                                   .gguf = "smollm3",
                                                   .ties_head = true,
                                                   .defaults = { .rope_theta = 2e6 },
                                                   .describe = describe };
