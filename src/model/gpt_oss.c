// SPDX-License-Identifier: Apache-2.0
// model/gpt_oss.c: gpt-oss: attention with sinks, a window on every other layer, biases everywhere, and a mixture of
// experts whose gates are clamped. Safetensors have an expert's gate and up as one matrix whose rows alternate.
#include "model/architecture.h"
#include "model/tensor_lookup.h"

static void write_experts(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    int count = config->experts.count, width = config->experts.width, hidden = config->hidden;
    struct op_matrix matrices[3];
    if (graph->source.json) {
        matrices[0] = find_alternating(graph, W_GPT_OSS_GATE_UP, 0, 2, count, width, hidden, BUFFER_GATE);
        matrices[1] = find_alternating(graph, W_GPT_OSS_GATE_UP, 1, 2, count, width, hidden, BUFFER_UP);
        matrices[2] = find_alternating(graph, W_GPT_OSS_DOWN, 0, 1, count, hidden, width, BUFFER_SLOTS);
    } else {
        matrices[0] = find_experts(graph, W_EXPERTS_GATE, count, width, hidden, BUFFER_GATE);
        matrices[1] = find_experts(graph, W_EXPERTS_UP, count, width, hidden, BUFFER_UP);
        matrices[2] = find_experts(graph, W_EXPERTS_DOWN, count, hidden, width, BUFFER_SLOTS);
    }
    graph_experts(graph, W_GPT_OSS_ROUTER, NULL, matrices);
}

static void write_layer(struct graph *graph)
{
    graph_attention_block(graph, false);
    graph_add(graph, BUFFER_X, BUFFER_H);
    graph_norm(graph, BUFFER_X, BUFFER_H, W_POST_ATTENTION_NORM);
    write_experts(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

static bool windowed(const struct graph *graph, int layer)
{
    (void)graph;
    return layer % 2 == 0;
}

// The clamped gate's numbers are the kernels' own.
static bool check_clamp(struct graph *graph)
{
    double limit = ACT_CLAMPED_LIMIT;
    return source_real(&graph->source, "swiglu_limit", NULL, &limit, graph->err)
        && (limit == ACT_CLAMPED_LIMIT
            || fail(graph->err, "config.json: swiglu_limit is %g; a gpt-oss model has %g", limit, ACT_CLAMPED_LIMIT));
}

static bool describe(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    int window = 128;
    config->activation = ACT_CLAMPED;
    graph->sinks = true;
    if (!architecture_check_activation(graph, "hidden_act", "silu") || !check_clamp(graph)
        || !architecture_read_experts(graph, NULL, NULL))
        return false;
    if (!config->experts.count)
        return fail(graph->err, "the model says nothing of its number of experts; the checkpoint is incomplete");
    return source_int(&graph->source, "sliding_window", "attention.sliding_window", 1, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window, windowed) && architecture_set_rope(graph)
        && graph_write(graph, write_layer);
}

const struct architecture gpt_oss_architecture = {
    .name = "gpt_oss",
    .model_types = { "gpt_oss" },
    .gguf = "gpt-oss",
    .defaults = { .heads = 64,
                  .kv_heads = 8,
                  .head_dim = 64,
                  .context = 131072,
                  .rope_theta = 150000,
                  .rope_not_truncated = true },
    .describe = describe,
};
