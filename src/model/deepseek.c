// SPDX-License-Identifier: Apache-2.0
// model/deepseek.c: DeepSeek V2 and V3: multi-head latent attention (MLA) with absorbed weights. Keys and values of all
// heads are made of one short vector per token, its latent, and some rotary dims. The cache holds these alone: w_uk
// projects a head's query to the latent's channels, attention runs over latents, and w_uv projects its result to the
// head's values.
#include <math.h>
#include <string.h>

#include "format/json.h"
#include "model/architecture.h"
#include "model/tensor_lookup.h"
#include "model/tensor_source_heads.h"

// ---- attention ----

// A bias would be a part of every key, and scales for each head are nowhere published: what is not read is refused.
static void check_alone(struct graph *graph, const struct op_matrix *matrix)
{
    if (graph->failed || !(matrix->bias || (matrix->scale && matrix->tensor->rank == 3)))
        return;
    graph->failed = true;
    fail(graph->err, "tensor %s has a bias or scales beside it, which nibble does not read", matrix->tensor->name);
}

// Finds the per-head linears of MLA that take queries to latents (W_UK) and latents to values (W_UV); GGUFs store the
// two apart.
static void find_heads(struct graph *graph, struct op_matrix *keys, struct op_matrix *values)
{
    const struct model_config *config = &graph->model->config;
    struct arena *arena = &graph->model->arena;
    int nope_dim = config->nope_dim, value_dim = config->value_dim, latent = config->latent;
    int each = nope_dim + value_dim;
    if (find_has(graph, W_K_B, "weight")) {
        *keys = find_experts(graph, W_K_B, config->heads, latent, nope_dim, BUFFER_Q);
        *values = find_experts(graph, W_V_B, config->heads, value_dim, latent, BUFFER_V);
        check_alone(graph, keys);
        check_alone(graph, values);
        if (graph->failed)
            return;
        keys->tensor = tensor_source_head_rows(arena, keys->tensor, latent, 0, latent);
        values->tensor = tensor_source_head_rows(arena, values->tensor, value_dim, 0, value_dim);
        return;
    }
    *keys = *values = find_matrix(graph, W_KV_B, config->heads * each, latent, BUFFER_Q);
    check_alone(graph, keys);
    if (graph->failed)
        return;
    keys->tensor = tensor_source_head_transpose(arena, keys->tensor, each, 0, nope_dim);
    values->tensor = tensor_source_head_rows(arena, values->tensor, each, nope_dim, value_dim);
    values->out = BUFFER_V;
}

static void write_attention(struct graph *graph)
{
    const struct model_config *config = &graph->model->config;
    int q_width = graph->model->buffer_width[BUFFER_Q_HEADS];
    struct op_matrix keys = { 0 }, values = { 0 };
    find_heads(graph, &keys, &values);
    graph_norm(graph, BUFFER_X, BUFFER_H, W_ATTENTION_NORM);
    graph_linear(graph, BUFFER_H,
                 (struct graph_output[]){ config->q_rank ? (struct graph_output){ BUFFER_Q_RANK, W_Q_A, config->q_rank }
                                                         : (struct graph_output){ BUFFER_Q_HEADS, W_Q, q_width },
                                          { BUFFER_K, W_KV_A, config->head_dim } },
                 2);
    if (config->q_rank) {
        graph_latent_norm(graph, BUFFER_Q_RANK, W_Q_A_NORM, config->q_rank);
        graph_linear(graph, BUFFER_Q_RANK, &(struct graph_output){ BUFFER_Q_HEADS, W_Q_B, q_width }, 1);
    }
    graph_latent_norm(graph, BUFFER_K, W_KV_A_NORM, config->latent);
    graph_heads(graph, BUFFER_Q_HEADS, keys, config->nope_dim);
    graph_attention(graph);
    graph_heads(graph, BUFFER_A, values, config->latent);
    graph_linear(graph, BUFFER_V, &(struct graph_output){ BUFFER_H, W_O, config->hidden }, 1);
}

// ---- layers ----

static bool has_experts(const struct graph *graph)
{
    const struct model_experts *experts = &graph->model->config.experts;
    return experts->count && graph->layer >= experts->first_layer && graph->layer % experts->moe_layer_freq == 0;
}

// Finds the bias that is added to router scores for expert selection only, not to the experts' weights (DeepSeek-V3,
// e_score_correction_bias). It is kept in more bits than the matrices.
static const struct tensor *find_bias(struct graph *graph)
{
    const char *suffix = graph->source.json ? "e_score_correction_bias" : "bias";
    const struct model_experts *experts = &graph->model->config.experts;
    bool needed = graph->source.json && experts->score == ROUTE_SIGMOID;
    return needed || find_has(graph, W_ROUTER_BIAS, suffix)
        ? find_named_vector(graph, W_ROUTER_BIAS, suffix, experts->count)
        : NULL;
}

// The experts that every token goes through come first, straight into the stream: the others read the same input.
static void write_experts(struct graph *graph)
{
    static const enum weight_name shared[] = { W_SHARED_GATE, W_SHARED_UP, W_SHARED_DOWN };
    const struct model_config *config = &graph->model->config;
    const struct model_experts *experts = &config->experts;
    struct op_matrix matrices[3];
    if (experts->shared_width) {
        graph_gated(graph, shared, experts->shared_width, BUFFER_SLOTS);
        graph_add(graph, BUFFER_X, BUFFER_SLOTS);
    }
    matrices[0] = find_experts(graph, W_EXPERTS_GATE, experts->count, experts->width, config->hidden, BUFFER_GATE);
    matrices[1] = find_experts(graph, W_EXPERTS_UP, experts->count, experts->width, config->hidden, BUFFER_UP);
    matrices[2] = find_experts(graph, W_EXPERTS_DOWN, experts->count, config->hidden, experts->width, BUFFER_SLOTS);
    graph_experts(graph, W_ROUTER, find_bias(graph), matrices);
}

static void write_layer(struct graph *graph)
{
    write_attention(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);
    graph_norm(graph, BUFFER_X, BUFFER_H, W_FFN_NORM);
    if (has_experts(graph))
        write_experts(graph);
    else
        graph_feed_forward(graph);
    graph_add(graph, BUFFER_X, BUFFER_H);
}

// ---- numbers ----

// A GGUF has the sizes of heads as they are without latents under names of their own; older ones have no others.
static bool read_head_sizes(struct graph *graph)
{
    const struct source *source = &graph->source;
    struct model_config *config = &graph->model->config;
    struct error *err = graph->err;
    bool both = source_gguf(source, "attention.key_length_mla");
    int key_dim = 0;
    if (source->json)
        return source_need_int(source, "qk_rope_head_dim", NULL, 2, HEAD_DIM_MAX, 64, &config->rotated, err)
            && source_need_int(source, "qk_nope_head_dim", NULL, 1, HEAD_DIM_MAX, 128, &config->nope_dim, err)
            && source_need_int(source, "v_head_dim", NULL, 1, HEAD_DIM_MAX, 128, &config->value_dim, err);
    if (!source_need_int(source, NULL, "rope.dimension_count", 2, HEAD_DIM_MAX, 0, &config->rotated, err)
        || !source_need_int(source, NULL, both ? "attention.key_length_mla" : "attention.key_length", 2, LATENT_DIM_MAX,
                            0, &key_dim, err)
        || !source_need_int(source, NULL, both ? "attention.value_length_mla" : "attention.value_length", 1,
                            HEAD_DIM_MAX, 0, &config->value_dim, err))
        return false;
    config->nope_dim = key_dim - config->rotated;
    return true;
}

static bool read_sizes(struct graph *graph)
{
    const struct source *source = &graph->source;
    struct model_config *config = &graph->model->config;
    struct error *err = graph->err;
    if (!source_need_int(source, "kv_lora_rank", "attention.kv_lora_rank", 1, HEAD_DIM_MAX, 512, &config->latent, err)
        || !source_int(source, "q_lora_rank", "attention.q_lora_rank", 0, LINEAR_IN_MAX, &config->q_rank, err)
        || !read_head_sizes(graph))
        return false;
    config->head_dim = config->latent + config->rotated;
    config->kv_heads = 1;
    int widest = config->nope_dim + config->rotated > config->value_dim ? config->nope_dim + config->rotated
                                                                        : config->value_dim;
    if (config->head_dim > LATENT_DIM_MAX || config->rotated % 8 || config->nope_dim < 1
        || config->nope_dim > HEAD_DIM_MAX || config->heads * widest > LINEAR_IN_MAX)
        return fail(err,
                    "latents of %d channels and %d rotated ones, for %d heads with keys of %d and values of %d, make "
                    "no "
                    "model nibble can run",
                    config->latent, config->rotated, config->heads, config->nope_dim + config->rotated,
                    config->value_dim);
    for (int i = 0; i < config->layers; i++) {
        struct layer *layer = &graph->model->layer[i];
        layer->kv_heads = config->kv_heads;
        layer->head_dim = config->head_dim;
        layer->latent = config->latent;
    }
    return true;
}

static bool read_rope(struct graph *graph)
{
    struct model *model = graph->model;
    struct rope rope = { 0 };
    model->config.rope_interleaved = true;
    if (!source_bool(&graph->source, "rope_interleave", &model->config.rope_interleaved, graph->err)
        || !rope_read(&rope, &graph->source, "full_attention", model->config.context, model->config.rotated,
                      graph->err))
        return false;
    model->config.attention_scale = rope.attention / sqrt(model->config.nope_dim + model->config.rotated);
    const float *frequencies = rope_frequencies(&rope, model->config.rotated, &model->arena);
    for (int i = 0; i < model->config.layers; i++) {
        model->layer[i].frequencies = frequencies;
        model->layer[i].rope_magnitude = (float)rope.magnitude;
    }
    return true;
}

// How experts are chosen, in words of config.json; V3's own do not say it.
static bool read_choice(struct graph *graph, const char *method, const char *score)
{
    struct model_experts *experts = &graph->model->config.experts;
    const json_t *json = graph->source.json;
    int gating = 1;
    if (!json) {
        const struct gguf_value *norm = source_gguf(&graph->source, "expert_weights_norm");
        experts->normalise = norm && norm->type == GGUF_BOOL && norm->integer;
        if (!source_int(&graph->source, NULL, "expert_gating_func", 1, 2, &gating, graph->err))
            return false;
        experts->score = gating == 2 ? ROUTE_SIGMOID : ROUTE_SOFTMAX;
        experts->group_best = gating == 2 ? 2 : 1;
        return true;
    }
    experts->normalise = !strcmp(method, "noaux_tc");
    if (!json_get_text(json, "topk_method", &method, graph->err)
        || !json_get_text(json, "scoring_func", &score, graph->err)
        || !json_get_bool(json, "norm_topk_prob", &experts->normalise, graph->err))
        return fail_within(graph->err, "config.json");
    experts->score = strcmp(score, "sigmoid") ? ROUTE_SOFTMAX : ROUTE_SIGMOID;
    experts->group_best = !strcmp(method, "noaux_tc") ? 2 : 1;
    if (!strcmp(method, "greedy"))
        experts->groups = experts->topk_group = 1;
    if (strcmp(method, "greedy") && strcmp(method, "group_limited_greedy") && strcmp(method, "noaux_tc"))
        return fail(graph->err,
                    "config.json: topk_method is \"%s\"; greedy, group_limited_greedy and noaux_tc are known", method);
    return !strcmp(score, "sigmoid") || !strcmp(score, "softmax")
        || fail(graph->err, "config.json: scoring_func is \"%s\"; softmax and sigmoid are known", score);
}

static bool read_experts(struct graph *graph, const char *method, const char *score)
{
    const struct source *source = &graph->source;
    struct model_experts *experts = &graph->model->config.experts;
    struct error *err = graph->err;
    int shared = 0, layers = graph->model->config.layers;
    if (!architecture_read_experts(graph, "n_routed_experts", "moe_intermediate_size"))
        return false;
    experts->moe_layer_freq = 1;
    if (!experts->count)
        return true;
    if (!source_int(source, "n_group", "expert_group_count", 1, EXPERTS_MAX, &experts->groups, err)
        || !source_int(source, "topk_group", "expert_group_used_count", 1, EXPERTS_MAX, &experts->topk_group, err)
        || !source_int(source, "first_k_dense_replace", "leading_dense_block_count", 0, layers, &experts->first_layer,
                       err)
        || !source_int(source, "moe_layer_freq", NULL, 1, layers, &experts->moe_layer_freq, err)
        || !source_int(source, "n_shared_experts", "expert_shared_count", 0, EXPERTS_MAX, &shared, err)
        || !source_real(source, "routed_scaling_factor", "expert_weights_scale", &experts->scale, err)
        || !read_choice(graph, method, score))
        return false;
    if (experts->first_layer == layers) // no layer has any
        return experts->count = 0, true;
    experts->shared_width = shared * experts->width;
    experts->scale = experts->scale == 0 ? 1 : experts->scale; // what GGUFs mean by it
    int each = experts->count / experts->groups;
    if (experts->count % experts->groups || experts->topk_group > experts->groups
        || (experts->groups > 1 && each < experts->group_best) || experts->top_k > experts->topk_group * each
        || experts->shared_width > LINEAR_IN_MAX)
        return fail(err, "%d of %d experts cannot be chosen from %d of %d groups, with %d more for every token",
                    experts->top_k, experts->count, experts->topk_group, experts->groups, shared);
    return true;
}

static bool describe(struct graph *graph, const char *method, const char *score)
{
    graph->model->config.activation = ACT_SILU;
    return architecture_check_activation(graph, "hidden_act", "silu") && read_sizes(graph) && read_rope(graph)
        && read_experts(graph, method, score) && graph_write(graph, write_layer);
}

static bool describe_v2(struct graph *graph) { return describe(graph, "greedy", "softmax"); }
static bool describe_v3(struct graph *graph) { return describe(graph, "noaux_tc", "sigmoid"); }

const struct architecture deepseek_v2_architecture = { .name = "deepseek_v2",
                                                       .model_types = { "deepseek_v2" },
                                                       .gguf = "deepseek2",
                                                       .latent = true,
                                                       .describe = describe_v2 };
const struct architecture deepseek_v3_architecture = {
    .name = "deepseek_v3", .model_types = { "deepseek_v3", "kimi_k2" }, .latent = true, .describe = describe_v3
};
