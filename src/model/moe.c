// SPDX-License-Identifier: Apache-2.0
// model/moe.c: Mixtral and Qwen 3 MoE: plain layers whose feed forward is a mixture of experts. GGUFs of Mixtral call
// themselves llama.
#include "model/architecture.h"
#include "model/tensor_lookup.h"

// The names of a layer's experts.
struct names {
    enum weight_name router, gate, up, down;
};

static void write_experts(struct graph *graph, const struct names *names)
{
    const struct model_config *config = &graph->model->config;
    int count = config->experts.count, width = config->experts.width;
    struct op_matrix matrices[3];
    matrices[0] = find_experts(graph, names->gate, count, width, config->hidden, BUFFER_GATE);
    matrices[1] = find_experts(graph, names->up, count, width, config->hidden, BUFFER_UP);
    matrices[2] = find_experts(graph, names->down, count, config->hidden, width, BUFFER_SLOTS);
    graph_experts(graph, names->router, NULL, matrices);
}

static void write_layer(struct graph *graph, bool head_norms, const struct names *names)
{
    graph_attention_block(graph, head_norms);
    graph_add(graph, BUFFER_X, BUFFER_H);
    graph_norm(graph, BUFFER_X, BUFFER_H, W_FFN_NORM);
    write_experts(graph, names);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

// ---- Mixtral ----

void moe_write_mixtral_layer(struct graph *graph)
{
    static const struct names names = { W_MIXTRAL_ROUTER, W_MIXTRAL_GATE, W_MIXTRAL_UP, W_MIXTRAL_DOWN };
    write_layer(graph, false, &names);
}

static bool need_experts(struct graph *graph, const char *count_key)
{
    if (graph->model->config.experts.count)
        return true;
    return graph->source.json ? fail(graph->err, "config.json lacks %s; the checkpoint is incomplete", count_key)
                              : fail(graph->err,
                                     "gguf: key %s.expert_count is missing; the file was not converted "
                                     "whole",
                                     graph->source.prefix);
}

static bool describe_mixtral(struct graph *graph)
{
    int window = 0;
    graph->model->config.activation = ACT_SILU;
    return architecture_check_activation(graph, "hidden_act", "silu") && architecture_read_experts(graph, NULL, NULL)
        && need_experts(graph, "num_local_experts")
        && source_int(&graph->source, "sliding_window", NULL, 0, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window, architecture_every_layer) && architecture_set_rope(graph)
        && graph_write(graph, moe_write_mixtral_layer);
}

// ---- Qwen 3 MoE ----

static bool is_listed(const json_t *list, int layer)
{
    size_t i;
    json_t *entry;
    json_array_foreach (list, i, entry)
        if (json_is_integer(entry) && json_integer_value(entry) == layer)
            return true;
    return false;
}

// Some layers may be without experts: those that are listed, and all but every decoder_sparse_step-th.
bool moe_has_experts(const struct graph *graph)
{
    const json_t *step = json_object_get(graph->source.json, "decoder_sparse_step");
    json_int_t moe_layer_freq = json_is_integer(step) && json_integer_value(step) > 0 ? json_integer_value(step) : 1;
    return !is_listed(json_object_get(graph->source.json, "mlp_only_layers"), graph->layer)
        && (graph->layer + 1) % moe_layer_freq == 0;
}

static void write_qwen3_layer(struct graph *graph)
{
    static const struct names names = { W_ROUTER, W_EXPERTS_GATE, W_EXPERTS_UP, W_EXPERTS_DOWN };
    if (moe_has_experts(graph))
        write_layer(graph, true, &names);
    else
        graph_plain_layer(graph, true);
}

static bool describe_qwen3_moe(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    bool use_window = false;
    int window = 0;
    config->activation = ACT_SILU;
    if (!architecture_check_activation(graph, "hidden_act", "silu")
        || !architecture_read_experts(graph, "num_experts", "moe_intermediate_size")
        || !need_experts(graph, "num_experts"))
        return false;
    config->experts.normalise = !graph->source.json; // what config.json does not say
    return source_bool(&graph->source, "norm_topk_prob", &config->experts.normalise, graph->err)
        && source_bool(&graph->source, "use_sliding_window", &use_window, graph->err)
        && source_int(&graph->source, use_window ? "sliding_window" : NULL, NULL, 0, INT32_MAX, &window, graph->err)
        && architecture_set_windows(graph, window, architecture_every_layer) && architecture_set_rope(graph)
        && graph_write(graph, write_qwen3_layer);
}

const struct architecture mixtral_architecture = { .name = "mixtral",
                                                   .model_types = { "mixtral" },
                                                   .defaults = { .kv_heads = 8, .context = 131072, .rope_theta = 1e6 },
                                                   .describe = describe_mixtral };
const struct architecture qwen3_moe_architecture = {
    .name = "qwen3_moe", .model_types = { "qwen3_moe" }, .gguf = "qwen3moe", .describe = describe_qwen3_moe
};
