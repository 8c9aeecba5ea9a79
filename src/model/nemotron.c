// SPDX-License-Identifier: Apache-2.0
// model/nemotron.c: Nemotron-H: layers of four kinds, each a norm and one thing: a state space (Mamba 2), attention
// without rope, a feed forward of squared ReLUs, or a mixture of experts of these. GGUFs with experts have a name of
// their own.
#include <math.h>
#include <string.h>

#include "format/json.h"
#include "model/architecture.h"
#include "model/tensor_lookup.h"

enum { STATE_VALUES_MAX = 1024, STATE_HEADS_MAX = 1024 };

enum kind { KIND_SCAN, KIND_ATTENTION, KIND_FEED_FORWARD, KIND_EXPERTS, KIND_COUNT };

// Letters of hybrid_override_pattern, and the words of layers_block_type, old and new.
static const struct {
    char letter;
    const char *words[2];
} kinds[KIND_COUNT] = {
    [KIND_SCAN] = { 'M', { "mamba", "linear_attention" } },
    [KIND_ATTENTION] = { '*', { "attention", "full_attention" } },
    [KIND_FEED_FORWARD] = { '-', { "mlp", "mlp" } },
    [KIND_EXPERTS] = { 'E', { "moe", "moe" } },
};

static const struct architecture_name names[] = {
    { W_EMBED, "embeddings" },
    { W_FINAL_NORM, "norm_f" },
    { W_ATTENTION_NORM, "norm" },
    { W_Q, "mixer.q_proj" },
    { W_K, "mixer.k_proj" },
    { W_V, "mixer.v_proj" },
    { W_O, "mixer.o_proj" },
    { W_UP, "mixer.up_proj" },
    { W_DOWN, "mixer.down_proj" },
    { W_ROUTER, "mixer.gate" },
    { W_ROUTER_BIAS, "mixer.gate" },
    { W_EXPERTS_UP, "mixer.experts.*.up_proj" },
    { W_EXPERTS_DOWN, "mixer.experts.*.down_proj" },
    { W_SHARED_UP, "mixer.shared_experts.up_proj" },
    { W_SHARED_DOWN, "mixer.shared_experts.down_proj" },
    { 0 },
};

// ---- kinds of layers ----

static const json_t *list_of_kinds(const json_t *json)
{
    const json_t *list = json_object_get(json, "layers_block_type");
    return json_is_array(list) ? list : NULL;
}

static int count_layers(const struct source *source)
{
    const json_t *list = list_of_kinds(source->json);
    const char *letters = json_string_value(json_object_get(source->json, "hybrid_override_pattern"));
    return list ? (int)json_array_size(list) : letters ? (int)strlen(letters) : 0;
}

// A GGUF's layers: without keys and values and without a feed forward, it is a state space.
static bool kind_from_gguf(const struct graph *graph, int layer, enum kind *out, struct error *err)
{
    int kv_heads = 0, feed_forward = 0;
    if (!source_int_of_layer(&graph->source, "attention.head_count_kv", layer, 0, INT32_MAX, &kv_heads, err)
        || !source_int_of_layer(&graph->source, "feed_forward_length", layer, 0, INT32_MAX, &feed_forward, err))
        return false;
    *out = feed_forward ? source_gguf(&graph->source, "expert_count") ? KIND_EXPERTS : KIND_FEED_FORWARD
        : kv_heads      ? KIND_ATTENTION
                        : KIND_SCAN;
    return true;
}

static bool kind_of(const struct graph *graph, int layer, enum kind *out, struct error *err)
{
    const json_t *json = graph->source.json;
    if (!json)
        return kind_from_gguf(graph, layer, out, err);
    const json_t *list = list_of_kinds(json);
    const char *word = json_string_value(json_array_get(list, (size_t)layer));
    const char *letters = list ? NULL : json_string_value(json_object_get(json, "hybrid_override_pattern"));
    for (int i = 0; i < KIND_COUNT; i++) {
        *out = (enum kind)i;
        if (letters ? letters[layer] == kinds[i].letter
                    : word && (!strcmp(word, kinds[i].words[0]) || !strcmp(word, kinds[i].words[1])))
            return true;
    }
    return fail(err, "config.json: %s says \"%.*s\" for layer %d; mamba, attention, mlp and moe (M, *, -, E) are known",
                letters ? "hybrid_override_pattern" : "layers_block_type", letters ? 1 : 40,
                letters    ? letters + layer
                    : word ? word
                           : "",
                layer);
}

// ---- layers ----

// One number for each head: a vector, or in a GGUF a matrix of shape (heads, 1).
static const struct tensor *find_per_head(struct graph *graph, enum weight_name name, const char *suffix)
{
    int heads = graph->model->config.recurrent.heads;
    return graph->source.json ? find_named_vector(graph, name, suffix, heads) : find_column(graph, name, suffix, heads);
}

static void write_scan(struct graph *graph)
{
    const struct model_recurrent *recurrent = &graph->model->config.recurrent;
    int inner = recurrent->heads * recurrent->values;
    graph_fused(graph,
                (struct graph_output[]){ { BUFFER_GATE, W_SCAN_IN, inner },
                                         { BUFFER_MIX, W_SCAN_IN, recurrent->channels },
                                         { BUFFER_DT, W_SCAN_IN, recurrent->heads } },
                3);
    graph_conv(graph, W_SCAN_CONV,
               find_has(graph, W_SCAN_CONV, "bias") ? find_named_vector(graph, W_SCAN_CONV, "bias", recurrent->channels)
                                                    : NULL);
    graph_scan(graph, find_per_head(graph, W_SCAN_DECAY, ""),
               find_per_head(graph, W_SCAN_TIME_BIAS, graph->source.json ? "" : "bias"),
               find_per_head(graph, W_SCAN_SKIP, ""));
    graph_gate(graph, ACT_SILU, BUFFER_GATE, BUFFER_MIX, inner);
    graph_group_norm(graph, BUFFER_MIX, W_SCAN_NORM, recurrent->groups, inner / recurrent->groups);
    graph_linear_of(graph, BUFFER_MIX, inner,
                    &(struct graph_output){ BUFFER_H, W_SCAN_OUT, graph->model->config.hidden }, 1);
}

// The shared experts come first and add to the residual stream, since the routed experts read the same input. Routed
// experts may work on a latent of fewer channels.
static void write_experts(struct graph *graph)
{
    static const enum weight_name shared[] = { W_SHARED_UP, W_SHARED_DOWN };
    const struct model_config *config = &graph->model->config;
    const struct model_experts *experts = &config->experts;
    int channels = experts->latent ? experts->latent : config->hidden;
    enum buffer in_out = experts->latent ? BUFFER_EXPERT_LATENT : BUFFER_H;
    const char *suffix = graph->source.json ? "e_score_correction_bias" : "bias";
    struct op_matrix matrices[2];
    if (experts->shared_width) {
        graph_ungated(graph, shared, experts->shared_width, BUFFER_SLOTS);
        graph_add(graph, BUFFER_X, BUFFER_SLOTS);
    }
    graph_route(graph, W_ROUTER, find_named_vector(graph, W_ROUTER_BIAS, suffix, experts->count));
    if (experts->latent)
        graph_linear(graph, BUFFER_H, &(struct graph_output){ BUFFER_EXPERT_LATENT, W_NARROW_DOWN, channels }, 1);
    matrices[0] = find_experts(graph, W_EXPERTS_UP, experts->count, experts->width, channels, BUFFER_GATE);
    matrices[1] = find_experts(graph, W_EXPERTS_DOWN, experts->count, channels, experts->width, BUFFER_SLOTS);
    graph_routed_experts(graph, in_out, channels, matrices, 2);
    if (experts->latent)
        graph_linear(graph, BUFFER_EXPERT_LATENT, &(struct graph_output){ BUFFER_H, W_NARROW_UP, config->hidden }, 1);
}

static void write_layer(struct graph *graph)
{
    static const enum weight_name feed_forward[] = { W_UP, W_DOWN };
    enum kind kind = KIND_SCAN;
    if (!kind_of(graph, graph->layer, &kind, graph->err))
        graph->failed = true;
    graph_norm(graph, BUFFER_X, BUFFER_H, W_ATTENTION_NORM);
    switch (kind) {
    case KIND_ATTENTION:
        graph_qkv(graph);
        graph_attention(graph);
        graph_output(graph);
        break;
    case KIND_FEED_FORWARD: graph_ungated(graph, feed_forward, graph->model->config.feed_forward, BUFFER_H); break;
    case KIND_EXPERTS: write_experts(graph); break;
    default: write_scan(graph);
    }
    graph_add(graph, BUFFER_X, BUFFER_H);
}

// ---- hyperparameters ----

// Reads the kind of each layer, and finds out whether any layer has experts.
static bool read_kinds(struct graph *graph, bool *experts)
{
    struct model *model = graph->model;
    const struct model_recurrent *recurrent = &model->config.recurrent;
    int listed = graph->source.json ? count_layers(&graph->source) : model->config.layers;
    if (listed != model->config.layers)
        return fail(graph->err, "config.json names %d layers, and num_hidden_layers is %d", listed,
                    model->config.layers);
    for (int i = 0; i < model->config.layers; i++) {
        enum kind kind;
        if (!kind_of(graph, i, &kind, graph->err))
            return false;
        *experts |= kind == KIND_EXPERTS;
        model->layer[i].kind = kind == KIND_SCAN ? LAYER_STATE : kind == KIND_ATTENTION ? LAYER_ATTENTION : LAYER_PLAIN;
        if (kind == KIND_SCAN)
            model->layer[i].state = kv_state_make(recurrent->conv_width - 1, recurrent->channels, recurrent->heads,
                                                  recurrent->keys, recurrent->values);
    }
    return true;
}

// The range to which Mamba 2's dt is clamped. Published checkpoints have no upper bound: infinity, which JSON lacks.
static void read_time(const struct graph *graph, struct model_recurrent *recurrent)
{
    const json_t *limits = json_object_get(graph->source.json, "time_step_limit");
    const json_t *low = json_array_get(limits, 0), *high = json_array_get(limits, 1);
    recurrent->dt_min = json_is_number(low) ? fmax(json_number_value(low), 0) : 0;
    recurrent->dt_max = json_is_number(high) ? json_number_value(high) : INFINITY;
}

static bool read_recurrent(struct graph *graph)
{
    const struct source *source = &graph->source;
    struct model_recurrent *recurrent = &graph->model->config.recurrent;
    struct error *err = graph->err;
    int inner = 0;
    if (!source_need_int(source, "mamba_num_heads", "ssm.time_step_rank", 1, STATE_HEADS_MAX, 128, &recurrent->heads,
                         err)
        || !source_need_int(source, "n_groups", "ssm.group_count", 1, STATE_HEADS_MAX, 8, &recurrent->groups, err)
        || !source_need_int(source, "ssm_state_size", "ssm.state_size", 1, SSM_SCAN_KEYS_MAX, 128, &recurrent->keys,
                            err)
        || !source_need_int(source, "conv_kernel", "ssm.conv_kernel", 2, CONV_KERNEL_MAX, 4, &recurrent->conv_width,
                            err))
        return false;
    if (source->json
            ? !source_need_int(source, "mamba_head_dim", NULL, 1, STATE_VALUES_MAX, 64, &recurrent->values, err)
            : !source_need_int(source, NULL, "ssm.inner_size", 1, LINEAR_IN_MAX, 0, &inner, err))
        return false;
    if (!source->json)
        recurrent->values = inner / recurrent->heads;
    inner = source->json ? recurrent->heads * recurrent->values : inner;
    recurrent->channels = inner + 2 * recurrent->groups * recurrent->keys;
    if (inner != recurrent->heads * recurrent->values || recurrent->heads % recurrent->groups
        || recurrent->channels > LINEAR_IN_MAX)
        return fail(err,
                    "a state space of %d channels for %d heads in %d groups, with %d keys, makes no model nibble "
                    "can run",
                    inner, recurrent->heads, recurrent->groups, recurrent->keys);
    read_time(graph, recurrent);
    return true;
}

// The head size of attention has an older name in some files: attention_head_dim. Layers have no rope op, so `rotated`
// is only the value that every model has.
static bool read_attention(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    if (!source_int(&graph->source, "attention_head_dim", NULL, 2, HEAD_DIM_MAX, &config->head_dim, graph->err))
        return false;
    if (config->head_dim % 2 || config->heads * config->head_dim > LINEAR_IN_MAX)
        return fail(graph->err, "%d heads of %d channels make no model nibble can run", config->heads,
                    config->head_dim);
    config->rotated = config->head_dim;
    config->attention_scale = 1 / sqrt(config->head_dim);
    for (int i = 0; i < config->layers; i++)
        graph->model->layer[i].head_dim = config->head_dim;
    return true;
}

static bool read_experts(struct graph *graph)
{
    const struct source *source = &graph->source;
    struct model_experts *experts = &graph->model->config.experts;
    struct error *err = graph->err;
    int shared = 1;
    if (!architecture_read_experts(graph, "n_routed_experts", "moe_intermediate_size")
        || !source_int(source, "n_group", "expert_group_count", 1, EXPERTS_GROUPS_MAX, &experts->groups, err)
        || !source_int(source, "topk_group", "expert_group_used_count", 1, EXPERTS_GROUPS_MAX, &experts->topk_group,
                       err)
        || !source_int(source, "moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length", 0,
                       LINEAR_IN_MAX, &experts->shared_width, err)
        || !source_int(source, "n_shared_experts", "expert_shared_count", 0, EXPERTS_MAX, &shared, err)
        || !source_int(source, "moe_latent_size", "moe_latent_size", 0, LINEAR_IN_MAX, &experts->latent, err)
        || !source_real(source, "routed_scaling_factor", "expert_weights_scale", &experts->scale, err)
        || !source_bool(source, "norm_topk_prob", &experts->normalise, err))
        return false;
    const struct gguf_value *norm = source_gguf(source, "expert_weights_norm");
    experts->normalise &= !norm || norm->type != GGUF_BOOL || norm->integer;
    experts->shared_width = shared ? experts->shared_width : 0;
    experts->score = ROUTE_SIGMOID;
    experts->group_best = 2;
    int each = experts->count / experts->groups;
    if (!experts->count || experts->count % experts->groups || experts->topk_group > experts->groups
        || (experts->groups > 1 && each < experts->group_best) || experts->top_k > experts->topk_group * each)
        return fail(err, "%d of %d experts cannot be chosen from %d of %d groups", experts->top_k, experts->count,
                    experts->topk_group, experts->groups);
    return true;
}

static bool read_epsilon(struct graph *graph)
{
    double *epsilon = &graph->model->config.norm_epsilon;
    return source_real(&graph->source, "layer_norm_epsilon", NULL, epsilon, graph->err)
        && (*epsilon > 0 || fail(graph->err, "norm epsilon %g makes no model that nibble can run", *epsilon));
}

static bool describe(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    bool experts = false;
    config->activation = ACT_RELU; // gate and up are the same matrix, so act(gate) * up is the squared ReLU
    return architecture_check_activation(graph, "mlp_hidden_act", "relu2")
        && architecture_check_activation(graph, "mamba_hidden_act", "silu") && architecture_skip_mtp(graph)
        && read_epsilon(graph) && read_recurrent(graph) && read_attention(graph) && read_kinds(graph, &experts)
        && (!experts || read_experts(graph)) && graph_write(graph, write_layer);
}

#define NEMOTRON_H                                                                        \
    .names = names, .count_layers = count_layers, .by_layer = true, .describe = describe, \
    .defaults = { .heads = 32, .kv_heads = 8, .head_dim = 128, .context = 4096 }

const struct architecture nemotron_h_architecture = {
    .name = "nemotron_h", .model_types = { "nemotron_h" }, .gguf = "nemotron_h", NEMOTRON_H
};
const struct architecture nemotron_h_moe_architecture = { .name = "nemotron_h_moe",
                                                          .gguf = "nemotron_h_moe",
                                                          NEMOTRON_H };
