// SPDX-License-Identifier: Apache-2.0
// model/gemma.c: Gemma 2 and 3. Both norm a block's result before adding it, scale the embedding and mix windowed with
// full layers; Gemma 2 caps scores and logits, Gemma 3 norms q and k per head and rotates windowed layers by another
// base.
#include <math.h>

#include "model/architecture.h"

static void write_block(struct graph *graph, bool head_norms)
{
    graph_attention_block(graph, head_norms);
    graph_norm(graph, BUFFER_H, BUFFER_H, W_POST_ATTENTION_NORM);
    graph_add(graph, BUFFER_X, BUFFER_H);

    graph_norm(graph, BUFFER_X, BUFFER_H, W_PRE_FFN_NORM);
    graph_feed_forward(graph);
    graph_norm(graph, BUFFER_H, BUFFER_H, W_POST_FFN_NORM);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

static void write_gemma2_layer(struct graph *graph) { write_block(graph, false); }
static void write_gemma3_layer(struct graph *graph) { write_block(graph, true); }

// The query's divisor is squared in config.json; a GGUF does not carry it, and only the 27B models (known by their
// number of layers) differ from the head size.
static bool read_attention_scale(struct graph *graph, int layers_of_27b)
{
    struct model_config *config = &graph->model->config;
    double squared = config->head_dim;
    if (graph->source.json)
        squared = 256;
    else if (config->layers == layers_of_27b)
        squared = (double)config->hidden / config->heads;
    if (!source_real(&graph->source, "query_pre_attn_scalar", NULL, &squared, graph->err))
        return false;
    if (!(squared > 0))
        return fail(graph->err, "config.json: query_pre_attn_scalar is %g; a positive number was expected", squared);
    config->attention_scale = 1 / sqrt(squared);
    return true;
}

static bool read_common(struct graph *graph, int layers_of_27b)
{
    struct model_config *config = &graph->model->config;
    config->activation = ACT_GELU_TANH;
    config->embed_scale = sqrt(config->hidden);
    config->norm_offset = graph->source.json ? 1 : 0; // GGUF writers have added it already
    return architecture_check_activation(graph, "hidden_activation", "gelu_pytorch_tanh")
        && source_real(&graph->source, "attn_logit_softcapping", "attn_logit_softcapping", &config->attention_softcap,
                       graph->err)
        && source_real(&graph->source, "final_logit_softcapping", "final_logit_softcapping", &config->final_softcap,
                       graph->err)
        && read_attention_scale(graph, layers_of_27b);
}

static bool gemma2_windowed(const struct graph *graph, int layer)
{
    (void)graph;
    return layer % 2 == 0;
}

static bool describe_gemma2(struct graph *graph)
{
    int window = 4096;
    return read_common(graph, 46)
        && source_int(&graph->source, "sliding_window", "attention.sliding_window", 1, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window, gemma2_windowed) && architecture_set_rope(graph)
        && graph_write(graph, write_gemma2_layer);
}

// Every sixth layer has full attention, unless config.json gives another sliding_window_pattern. GGUFs do not carry it.
static bool gemma3_windowed(const struct graph *graph, int layer)
{
    const json_t *pattern = graph->source.json ? json_object_get(graph->source.json, "sliding_window_pattern") : NULL;
    json_int_t interval = json_is_integer(pattern) && json_integer_value(pattern) > 0 ? json_integer_value(pattern) : 6;
    return (layer + 1) % interval != 0;
}

// Windowed layers have a base frequency of their own, and no scaling of the context.
static bool set_local_rope(struct graph *graph)
{
    struct model *model = graph->model;
    struct rope local = { .theta = 10000, .magnitude = 1 };
    const json_t *parameters = graph->source.json ? json_object_get(graph->source.json, "rope_parameters") : NULL;
    if (json_is_object(json_object_get(parameters, "sliding_attention"))) {
        if (!rope_read(&local, &graph->source, "sliding_attention", model->config.context, model->config.rotated,
                       graph->err))
            return false;
    } else if (!source_real(&graph->source, "rope_local_base_freq", "rope.freq_base_swa", &local.theta, graph->err)) {
        return false;
    }
    if (!(local.theta > 0))
        return fail(graph->err, "the rope base of windowed layers is %g; a positive number was expected", local.theta);
    const float *frequencies = rope_frequencies(&local, model->config.rotated, &model->arena);
    for (int i = 0; i < model->config.layers; i++) {
        if (!model->layer[i].window)
            continue;
        model->layer[i].frequencies = frequencies;
        model->layer[i].rope_magnitude = (float)local.magnitude;
    }
    return true;
}

static bool describe_gemma3(struct graph *graph)
{
    int window = 4096;
    return read_common(graph, 62)
        && source_int(&graph->source, "sliding_window", "attention.sliding_window", 1, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window, gemma3_windowed) && architecture_set_rope(graph)
        && set_local_rope(graph) && graph_write(graph, write_gemma3_layer);
}

const struct architecture gemma2_architecture = {
    .name = "gemma2",
    .model_types = { "gemma2" },
    .gguf = "gemma2",
    .ties_head = true,
    .defaults = { .heads = 8, .kv_heads = 4, .head_dim = 256, .context = 8192 },
    .describe = describe_gemma2,
};
const struct architecture gemma3_architecture = {
    .name = "gemma3",
    .model_types = { "gemma3_text", "gemma3" },
    .gguf = "gemma3",
    .ties_head = true,
    .defaults = { .heads = 8, .kv_heads = 4, .head_dim = 256, .context = 131072, .rope_theta = 1e6 },
    .describe = describe_gemma3,
};
