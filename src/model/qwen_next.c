// SPDX-License-Identifier: Apache-2.0
// model/qwen_next.c: Qwen3-Next and Qwen3.5. Three layers of four have linear attention by the gated delta rule, with a
// recurrent state in place of a KV cache; the others have gated attention with partial rotary embedding. Layers with
// experts have a shared expert besides, scaled by a sigmoid gate.
#include <string.h>

#include "model/architecture.h"
#include "model/tensor_lookup.h"
#include "model/tensor_source_rows.h"

enum { HEADS_MAX = 1024 };

static bool is_qwen3_next(const struct graph *graph) { return graph->architecture == &qwen3_next_architecture; }

// ---- matrices that a file has in one ----

// Some rows of each group of a matrix; the groups are its heads.
static struct op_matrix rows_of(struct graph *graph, const struct op_matrix *whole, const char *word, int each,
                                const struct row_run *runs, int count, enum buffer out)
{
    struct op_matrix part = { .scale = whole->scale, .out = out };
    if (!graph->failed && whole->bias) {
        graph->failed = true;
        fail(graph->err, "tensor %s has a bias beside it, which nibble does not read", whole->tensor->name);
    }
    if (!graph->failed)
        part.tensor = tensor_source_row_runs(&graph->model->arena, whole->tensor, word, each, runs, count);
    return part;
}

// ---- attention ----

// A head's query and its gate are neighbours.
static void write_attention(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    int dim = config->head_dim, q_width = config->heads * dim, kv_width = config->kv_heads * dim;
    struct op_matrix both = find_matrix(graph, W_Q, 2 * q_width, config->hidden, BUFFER_Q), qkv[3], gate;
    qkv[0] = rows_of(graph, &both, "q", 2 * dim, &(struct row_run){ 0, dim }, 1, BUFFER_Q);
    qkv[1] = find_matrix(graph, W_K, kv_width, config->hidden, BUFFER_K);
    qkv[2] = find_matrix(graph, W_V, kv_width, config->hidden, BUFFER_V);
    gate = rows_of(graph, &both, "gate", 2 * dim, &(struct row_run){ dim, dim }, 1, BUFFER_GATE);
    graph_matrices(graph, BUFFER_H, qkv, 3);
    graph_matrices(graph, BUFFER_H, &gate, 1);
    graph_head_norm(graph, BUFFER_Q, W_Q_NORM, config->heads);
    graph_head_norm(graph, BUFFER_K, W_K_NORM, config->kv_heads);
    graph_attention(graph);
    graph_gate(graph, ACT_SIGMOID, BUFFER_GATE, BUFFER_A, q_width);
    graph_output(graph);
}

// ---- the gated delta rule ----

// Finds the projections of q, k and v, and of the output gate (z). Qwen3-Next's safetensors, and its first GGUFs, have
// all four in one matrix, group of heads by group of heads.
static void find_inputs(struct graph *graph, struct op_matrix out[2])
{
    const struct model_config *config = &graph->model->config;
    const struct model_recurrent *recurrent = &config->recurrent;
    int keys = recurrent->keys, inner = recurrent->heads * recurrent->values, values = inner / recurrent->groups;
    if (!is_qwen3_next(graph) || (!graph->source.json && !find_has(graph, W_DELTA_QKVZ, "weight"))) {
        out[0] = find_matrix(graph, W_DELTA_QKV, recurrent->channels, config->hidden, BUFFER_MIX);
        out[1] = find_matrix(graph, W_DELTA_Z, inner, config->hidden, BUFFER_GATE);
        return;
    }
    const struct row_run runs[] = { { 0, keys }, { keys, keys }, { 2 * keys, values }, { 2 * keys + values, values } };
    struct op_matrix all = find_matrix(graph, W_DELTA_QKVZ, recurrent->channels + inner, config->hidden, BUFFER_MIX);
    out[0] = rows_of(graph, &all, "q, k, v", 2 * (keys + values), runs, 3, BUFFER_MIX);
    out[1] = rows_of(graph, &all, "z", 2 * (keys + values), runs + 3, 1, BUFFER_GATE);
}

// How much a token changes a head's state, and how much of it is forgotten; in one in all files of Qwen3-Next.
static void find_rates(struct graph *graph, struct op_matrix out[2])
{
    const struct model_config *config = &graph->model->config;
    int heads = config->recurrent.heads, each = heads / config->recurrent.groups;
    if (!is_qwen3_next(graph)) {
        out[0] = find_matrix(graph, W_DELTA_B, heads, config->hidden, BUFFER_BETA);
        out[1] = find_matrix(graph, W_DELTA_A, heads, config->hidden, BUFFER_DT);
        return;
    }
    struct op_matrix both = find_matrix(graph, W_DELTA_BA, 2 * heads, config->hidden, BUFFER_BETA);
    out[0] = rows_of(graph, &both, "b", 2 * each, &(struct row_run){ 0, each }, 1, BUFFER_BETA);
    out[1] = rows_of(graph, &both, "a", 2 * each, &(struct row_run){ each, each }, 1, BUFFER_DT);
}

static void write_delta(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    const struct model_recurrent *recurrent = &config->recurrent;
    bool json = graph->source.json;
    int inner = recurrent->heads * recurrent->values;
    struct op_matrix inputs[2], rates[2];
    find_inputs(graph, inputs);
    find_rates(graph, rates);
    graph_matrices(graph, BUFFER_H, inputs, 2);
    graph_matrices(graph, BUFFER_H, rates, 2);
    graph_conv(graph, W_DELTA_CONV, NULL);
    graph_delta(graph, find_named_vector(graph, W_DELTA_DECAY, "", recurrent->heads),
                find_named_vector(graph, W_DELTA_TIME_BIAS, json ? "" : "bias", recurrent->heads));
    graph_result_norm(graph, BUFFER_MIX, W_DELTA_NORM, recurrent->heads, recurrent->values);
    graph_gate(graph, ACT_SILU, BUFFER_GATE, BUFFER_MIX, inner);
    graph_linear_of(graph, BUFFER_MIX, inner, &(struct graph_output){ BUFFER_H, W_DELTA_OUT, config->hidden }, 1);
}

// ---- experts ----

static void find_layer_experts(struct graph *graph, struct op_matrix out[3])
{
    const struct model_config *config = &graph->model->config;
    int count = config->experts.count, width = config->experts.width, hidden = config->hidden;
    if (!find_has(graph, W_FUSED_GATE_UP, graph->source.json ? "" : "weight")) {
        out[0] = find_experts(graph, W_EXPERTS_GATE, count, width, hidden, BUFFER_GATE);
        out[1] = find_experts(graph, W_EXPERTS_UP, count, width, hidden, BUFFER_UP);
        out[2] = find_experts(graph, W_EXPERTS_DOWN, count, hidden, width, BUFFER_SLOTS);
        return;
    }
    out[0] = find_half(graph, W_FUSED_GATE_UP, 0, count, width, hidden, BUFFER_GATE);
    out[1] = find_half(graph, W_FUSED_GATE_UP, 1, count, width, hidden, BUFFER_UP);
    out[2] = find_stacked(graph, W_FUSED_DOWN, count, hidden, width, BUFFER_SLOTS);
}

// The expert that every token goes through comes first, straight into the stream: the others read the same input.
static void write_experts(struct graph *graph)
{
    static const enum weight_name shared[] = { W_QWEN_SHARED_GATE, W_QWEN_SHARED_UP, W_QWEN_SHARED_DOWN };
    const struct model_config *config = &graph->model->config;
    struct op_matrix share = find_row(graph, W_QWEN_SHARED_SHARE, config->hidden, BUFFER_SHARED), matrices[3];
    graph_matrices(graph, BUFFER_H, &share, 1);
    graph_gated(graph, shared, config->experts.shared_width, BUFFER_SLOTS);
    graph_gate_rows(graph, BUFFER_SHARED, BUFFER_SLOTS, config->hidden);
    graph_add(graph, BUFFER_X, BUFFER_SLOTS);
    find_layer_experts(graph, matrices);
    graph_experts(graph, W_ROUTER, NULL, matrices);
}

static void write_layer(struct graph *graph)
{
    graph_norm(graph, BUFFER_X, BUFFER_H, W_ATTENTION_NORM);
    if (graph->model->layer[graph->layer].kind == LAYER_STATE)
        write_delta(graph);
    else
        write_attention(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);
    graph_norm(graph, BUFFER_X, BUFFER_H, W_POST_ATTENTION_NORM);
    if (graph->model->config.experts.count && moe_has_experts(graph))
        write_experts(graph);
    else
        graph_feed_forward(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

// ---- numbers ----

static bool read_experts(struct graph *graph)
{
    const struct source *source = &graph->source;
    struct model_config *config = &graph->model->config;
    struct model_experts *experts = &config->experts;
    if (!architecture_read_experts(graph, "num_experts", "moe_intermediate_size"))
        return false;
    if (!experts->count)
        return config->feed_forward
            || fail(graph->err, "the checkpoint has neither experts nor a width of layers without any");
    if (!experts->width)
        return fail(graph->err, "the checkpoint does not say how wide its experts are");
    experts->shared_gated = true;
    return source_bool(source, "norm_topk_prob", &experts->normalise, graph->err)
        && source_need_int(source, "shared_expert_intermediate_size", "expert_shared_feed_forward_length", 1,
                           LINEAR_IN_MAX, 512, &experts->shared_width, graph->err);
}

// A GGUF has the size of all values; config.json that of one head's.
static bool read_recurrent(struct graph *graph)
{
    const struct source *source = &graph->source;
    struct model_recurrent *recurrent = &graph->model->config.recurrent;
    struct error *err = graph->err;
    int inner = 0;
    recurrent->delta = true;
    recurrent->interleaved = !source->json && !is_qwen3_next(graph);
    if (!source_need_int(source, "linear_num_key_heads", "ssm.group_count", 1, HEADS_MAX, 16, &recurrent->groups, err)
        || !source_need_int(source, "linear_num_value_heads", "ssm.time_step_rank", 1, HEADS_MAX, 32, &recurrent->heads,
                            err)
        || !source_need_int(source, "linear_key_head_dim", "ssm.state_size", 1, GATED_DELTA_KEYS_MAX, 128,
                            &recurrent->keys, err)
        || !source_need_int(source, "linear_conv_kernel_dim", "ssm.conv_kernel", 2, CONV_KERNEL_MAX, 4,
                            &recurrent->conv_width, err))
        return false;
    if (source->json
            ? !source_need_int(source, "linear_value_head_dim", NULL, 1, HEAD_DIM_MAX, 128, &recurrent->values, err)
            : !source_need_int(source, NULL, "ssm.inner_size", 1, LINEAR_IN_MAX, 0, &inner, err))
        return false;
    if (!source->json)
        recurrent->values = inner / recurrent->heads;
    recurrent->channels = 2 * recurrent->groups * recurrent->keys + recurrent->heads * recurrent->values;
    if (recurrent->heads % recurrent->groups || recurrent->values < 1 || (inner && inner % recurrent->heads)
        || recurrent->channels > LINEAR_IN_MAX)
        return fail(err, "%d heads with values of %d and %d with keys of %d make no gated delta rule nibble can run",
                    recurrent->heads, recurrent->values, recurrent->groups, recurrent->keys);
    return true;
}

// Whether a layer has a state: each is said, or every so many have attention.
static bool read_kind(struct graph *graph, int layer, int interval, bool *recurs)
{
    const json_t *types = json_object_get(graph->source.json, "layer_types");
    const struct gguf_value *listed = source_gguf(&graph->source, "attention.recurrent_layers");
    const char *word = json_string_value(json_array_get(types, (size_t)layer));
    *recurs = (layer + 1) % interval != 0;
    if (listed && (listed->type != GGUF_ARRAY || listed->element != GGUF_BOOL || listed->count <= (size_t)layer))
        return fail(graph->err, "gguf: key %s.attention.recurrent_layers does not say what layer %d is",
                    graph->source.prefix, layer);
    if (listed)
        *recurs = gguf_array_int(listed, (size_t)layer);
    if (!types || json_is_null(types))
        return true;
    *recurs = word && !strcmp(word, "linear_attention");
    return *recurs || (word && !strcmp(word, "full_attention"))
        || fail(graph->err,
                "config.json: layer_types says \"%s\" for layer %d; full_attention and linear_attention "
                "are known",
                word ? word : "nothing", layer);
}

static bool read_kinds(struct graph *graph)
{
    struct model *model = graph->model;
    const struct model_recurrent *recurrent = &model->config.recurrent;
    int interval = 4;
    if (!source_int(&graph->source, "full_attention_interval", "full_attention_interval", 1, INT32_MAX, &interval,
                    graph->err))
        return false;
    for (int i = 0; i < model->config.layers; i++) {
        bool recurs;
        if (!read_kind(graph, i, interval, &recurs))
            return false;
        model->layer[i].kind = recurs ? LAYER_STATE : LAYER_ATTENTION;
        if (recurs)
            model->layer[i].state = kv_state_make(recurrent->conv_width - 1, recurrent->channels, recurrent->heads,
                                                  recurrent->keys, recurrent->values);
    }
    return true;
}

static bool describe(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    config->activation = ACT_SILU;
    config->attention_gated = true;
    config->norm_offset = graph->source.json ? 1 : 0; // GGUF writers have added it already
    return architecture_check_activation(graph, "hidden_act", "silu") && architecture_skip_mtp(graph)
        && read_experts(graph) && read_recurrent(graph) && read_kinds(graph) && architecture_set_rope(graph)
        && graph_write(graph, write_layer);
}

#define QWEN_DEFAULTS .head_dim = 256, .context = 32768, .rotated_share = 0.25

const struct architecture qwen3_next_architecture = { .name = "qwen3_next",
                                                      .model_types = { "qwen3_next" },
                                                      .gguf = "qwen3next",
                                                      .defaults = { QWEN_DEFAULTS },
                                                      .describe = describe };
const struct architecture qwen3_5_architecture = { .name = "qwen3_5",
                                                   .model_types = { "qwen3_5_text" },
                                                   .gguf = "qwen35",
                                                   .defaults = { QWEN_DEFAULTS },
                                                   .describe = describe };
const struct architecture qwen3_5_moe_architecture = { .name = "qwen3_5_moe",
                                                       .model_types = { "qwen3_5_moe_text" },
                                                       .gguf = "qwen35moe",
                                                       .defaults = { QWEN_DEFAULTS, .experts_only = true },
                                                       .describe = describe };
