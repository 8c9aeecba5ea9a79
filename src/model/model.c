// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "format/json.h"
#include "model/architecture.h"
#include "model/tensor_lookup.h"
#include "model/kv_declared.h"

enum { LAYERS_MAX = 1024, WIDTH_MAX = LINEAR_IN_MAX, HEADS_MAX = 1024, CONTEXT_MAX = 1 << 28 };

static const struct architecture *const architectures[] = {
    &llama_architecture,   &mistral_architecture,     &qwen2_architecture,       &qwen3_architecture,
    &gemma2_architecture,  &gemma3_architecture,      &phi3_architecture,        &olmo2_architecture,
    &granite_architecture, &smollm3_architecture,     &mixtral_architecture,     &qwen3_moe_architecture,
    &gpt_oss_architecture, &deepseek_v2_architecture, &deepseek_v3_architecture, &qwen3_next_architecture,
    &qwen3_5_architecture, &qwen3_5_moe_architecture, &nemotron_h_architecture,  &nemotron_h_moe_architecture,
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static bool answers_to(const struct architecture *architecture, struct bytes name, bool gguf)
{
    if (gguf)
        return architecture->gguf && bytes_equal(name, bytes_of(architecture->gguf));
    for (size_t i = 0;
         i < sizeof architecture->model_types / sizeof *architecture->model_types && architecture->model_types[i]; i++)
        if (bytes_equal(name, bytes_of(architecture->model_types[i])))
            return true;
    return false;
}

static const struct architecture *find_architecture(struct bytes name, bool gguf, struct error *err)
{
    struct strbuf known = { 0 };
    for (int i = 0; i < ARCHITECTURES; i++) {
        if (answers_to(architectures[i], name, gguf))
            return strbuf_free(&known), architectures[i];
        strbuf_add_format(&known, "%s%s", known.len ? ", " : "", architectures[i]->name);
    }
    fail(err, "the model's architecture is \"%.*s\", which nibble does not run; it runs %s", (int)name.len, name.data,
         strbuf_text(&known));
    strbuf_free(&known);
    return NULL;
}

static const struct architecture *choose(struct source *source, const struct checkpoint *checkpoint, struct error *err)
{
    source->checkpoint = checkpoint;
    struct bytes name = { 0 };
    if (checkpoint->gguf) {
        if (!gguf_get_string(checkpoint->gguf, "general.architecture", &name, err))
            return NULL;
        if (!name.data)
            return fail(err, "gguf: key general.architecture is missing; the file does not say what model it is"), NULL;
    } else {
        const json_t *text = json_object_get(checkpoint->config,
                                             "text_config"); // models with more than text nest theirs
        source->json = json_is_object(text) ? text : checkpoint->config;
        const char *type = NULL;
        if (!json_get_text(source->json, "model_type", &type, err))
            return fail_within(err, "config.json"), NULL;
        if (!type)
            return fail(err, "config.json lacks model_type; the checkpoint does not say what model it is"), NULL;
        name = bytes_of(type);
    }
    const struct architecture *found = find_architecture(name, checkpoint->gguf, err);
    if (found) {
        source->prefix = found->gguf;
        source->by_layer = found->by_layer;
    }
    return found;
}

// Multimodal configs keep the type at the top, beside the text's own part.
static bool read_kv_dtype(const struct source *source, enum dtype *out, struct error *err)
{
    const char *word = "bfloat16"; // GGUF and float32 checkpoints
    const json_t *places[] = { source->checkpoint->config, source->json };
    for (int i = 0; i < 2 && source->json; i++)
        if (!json_get_text(places[i], "torch_dtype", &word, err) || !json_get_text(places[i], "dtype", &word, err))
            return fail_within(err, "config.json");
    *out = strcmp(word, "float16") ? DTYPE_BF16 : DTYPE_F16;
    return true;
}

// The rotary dims of a head.
static bool read_rotated(const struct source *source, const struct architecture_defaults *defaults, int head_dim,
                         int *out, struct error *err)
{
    double share = defaults->rotated_share > 0 ? defaults->rotated_share : 1;
    *out = head_dim;
    if (!source->json)
        return source_int(source, NULL, "rope.dimension_count", 2, HEAD_DIM_MAX, out, err);
    const json_t *parameters = json_object_get(source->json, "rope_parameters");
    if (!json_get_real(source->json, "partial_rotary_factor", &share, err)
        || !json_get_real(parameters, "partial_rotary_factor", &share, err))
        return fail_within(err, "config.json");
    if (!(share > 0 && share <= 1))
        return fail(err, "config.json: partial_rotary_factor is %g; more than 0 and at most 1 was expected", share);
    *out = (int)(head_dim * share) & ~1;
    return true;
}

static bool read_feed_forward(const struct source *source, const struct architecture_defaults *defaults, int *out,
                              struct error *err)
{
    const char *json_key = "intermediate_size", *gguf_key = "feed_forward_length";
    return defaults->experts_only ? source_int(source, json_key, gguf_key, 1, WIDTH_MAX, out, err)
                                  : source_need_int(source, json_key, gguf_key, 1, WIDTH_MAX, 0, out, err);
}

// Reads the settings that every architecture has.
static bool read_common(struct model_config *config, const struct source *source,
                        const struct architecture *architecture, struct error *err)
{
    const struct architecture_defaults *defaults = &architecture->defaults;
    int listed = source->json && architecture->count_layers ? architecture->count_layers(source) : 0;
    if (listed > LAYERS_MAX)
        return fail(err, "config.json names %d layers; up to %d are possible", listed, LAYERS_MAX);
    *config = (struct model_config){ .norm_epsilon = 1e-6, .embed_scale = 1, .residual_scale = 1, .logit_scale = 1 };
    if (!source_need_int(source, "num_hidden_layers", "block_count", 1, LAYERS_MAX, listed, &config->layers, err)
        || !source_need_int(source, "hidden_size", "embedding_length", 1, WIDTH_MAX, 0, &config->hidden, err)
        || !source_need_int(source, "num_attention_heads", "attention.head_count", 1, HEADS_MAX, defaults->heads,
                            &config->heads, err)
        || !read_feed_forward(source, defaults, &config->feed_forward, err)
        || !source_need_int(source, "max_position_embeddings", "context_length", 1, CONTEXT_MAX, defaults->context,
                            &config->context, err)
        || !source_real(source, "rms_norm_eps", "attention.layer_norm_rms_epsilon", &config->norm_epsilon, err)
        || !read_kv_dtype(source, &config->kv_dtype, err))
        return false;
    return config->norm_epsilon > 0
        || fail(err, "norm epsilon %g makes no model that nibble can run", config->norm_epsilon);
}

// How many heads, of what size: of every architecture whose heads have keys and values.
static bool read_heads(struct model_config *config, const struct source *source,
                       const struct architecture_defaults *defaults, struct error *err)
{
    config->kv_heads = source->json && defaults->kv_heads ? defaults->kv_heads : config->heads;
    config->head_dim = source->json && defaults->head_dim ? defaults->head_dim : config->hidden / config->heads;
    if (!source_int(source, "num_key_value_heads", "attention.head_count_kv", 1, HEADS_MAX, &config->kv_heads, err)
        || !source_int(source, "head_dim", "attention.key_length", 2, HEAD_DIM_MAX, &config->head_dim, err))
        return false;
    int value_dim = config->head_dim;
    if (!read_rotated(source, defaults, config->head_dim, &config->rotated, err)
        || !source_int(source, NULL, "attention.value_length", 2, HEAD_DIM_MAX, &value_dim, err))
        return false;
    if (config->heads % config->kv_heads)
        return fail(err, "%d attention heads cannot share %d key/value heads evenly", config->heads, config->kv_heads);
    if (config->head_dim < 2 || config->head_dim > HEAD_DIM_MAX || config->head_dim % 2
        || config->rotated > config->head_dim || config->rotated % 2 || value_dim != config->head_dim)
        return fail(err,
                    "heads of %d channels, values of %d, %d of them rotary; even sizes up to %d, the same for "
                    "keys and values, are supported",
                    config->head_dim, value_dim, config->rotated, HEAD_DIM_MAX);
    if (config->heads * config->head_dim > WIDTH_MAX)
        return fail(err, "%d heads of %d channels make no model nibble can run", config->heads, config->head_dim);
    config->attention_scale = 1 / sqrt(config->head_dim);
    return true;
}

bool architecture_every_layer(const struct graph *graph, int layer)
{
    (void)graph, (void)layer;
    return true;
}

static bool window_from_types(const json_t *types, int layer, bool *windowed, struct error *err)
{
    const char *word = json_string_value(json_array_get(types, (size_t)layer));
    *windowed = word && !strcmp(word, "sliding_attention");
    return *windowed || (word && !strcmp(word, "full_attention"))
        || fail(err,
                "config.json: layer_types says \"%s\" for layer %d; full_attention and sliding_attention are known",
                word ? word : "nothing", layer);
}

bool architecture_set_windows(struct graph *graph, int window, bool (*windowed)(const struct graph *graph, int layer))
{
    struct model *model = graph->model;
    const json_t *types = graph->source.json ? json_object_get(graph->source.json, "layer_types") : NULL;
    if (types && !json_is_array(types) && !json_is_null(types))
        return fail(graph->err, "config.json: layer_types is no list; one word per layer was expected");
    for (int i = 0; i < model->config.layers; i++) {
        bool has_window = false;
        if (json_is_array(types)) {
            if (!window_from_types(types, i, &has_window, graph->err))
                return false;
        } else if (window) {
            has_window = windowed(graph, i);
        }
        if (has_window && !window)
            return fail(graph->err, "config.json: layer %d has sliding_attention but sliding_window gives no size", i);
        model->layer[i].window = has_window ? window : 0;
    }
    return true;
}

bool architecture_set_rope(struct graph *graph)
{
    struct model *model = graph->model;
    struct rope rope = { .theta = graph->source.json ? graph->architecture->defaults.rope_theta : 0 };
    if (!rope_read(&rope, &graph->source, "full_attention", model->config.context, model->config.rotated, graph->err))
        return false;
    bool long_texts = rope.scaling == ROPE_LONG; // which other texts' turning would not suit
    if (long_texts
        && !rope_read_divisors(&rope, &graph->source, "full_attention", model->config.rotated, &model->arena,
                               graph->err))
        return false;
    if (!graph->source.json && graph->architecture->defaults.rope_not_truncated)
        rope.truncate = false;
    const float *frequencies = rope_frequencies(&rope, model->config.rotated, &model->arena);
    rope.divisors = rope.short_divisors;
    const float *others = long_texts ? rope_frequencies(&rope, model->config.rotated, &model->arena) : NULL;
    for (int i = 0; i < model->config.layers; i++) {
        model->layer[i].frequencies = frequencies;
        model->layer[i].short_frequencies = others;
        model->layer[i].short_context = (int)fmin(rope.original_context, CONTEXT_MAX);
        model->layer[i].rope_magnitude = (float)rope.magnitude;
    }
    return true;
}

bool architecture_read_experts(struct graph *graph, const char *count_key, const char *width_key)
{
    const struct source *source = &graph->source;
    struct model_config *config = &graph->model->config;
    struct model_experts *experts = &config->experts;
    *experts = (struct model_experts){
        .groups = 1, .topk_group = 1, .group_best = 1, .normalise = true, .scale = 1, .width = config->feed_forward
    };
    if (!source_int(source, "num_local_experts", "expert_count", 0, EXPERTS_MAX, &experts->count, graph->err)
        || !source_int(source, count_key, NULL, 0, EXPERTS_MAX, &experts->count, graph->err))
        return false;
    if (!experts->count)
        return true;
    if (!source_need_int(source, "num_experts_per_tok", "expert_used_count", 1, EXPERTS_TOP_K_MAX, 0, &experts->top_k,
                         graph->err)
        || !source_int(source, width_key, "expert_feed_forward_length", 1, WIDTH_MAX, &experts->width, graph->err))
        return false;
    return experts->top_k <= experts->count
        || fail(graph->err, "a token goes through %d experts, and the model has %d", experts->top_k, experts->count);
}

bool architecture_skip_mtp(struct graph *graph)
{
    int guessing = 0, *layers = &graph->model->config.layers;
    if (!source_int(&graph->source, NULL, "nextn_predict_layers", 0, *layers - 1, &guessing, graph->err))
        return false;
    *layers -= guessing;
    return true;
}

bool architecture_check_activation(struct graph *graph, const char *json_key, const char *word)
{
    const char *found = word;
    if (graph->source.json && !json_get_text(graph->source.json, json_key, &found, graph->err))
        return fail_within(graph->err, "config.json");
    return !strcmp(found, word)
        || fail(graph->err, "config.json: %s is \"%s\"; a %s model has \"%s\"", json_key, found,
                graph->model->config.architecture, word);
}

bool model_describe(struct model *model, const struct checkpoint *checkpoint, struct error *err)
{
    *model = (struct model){ 0 };
    struct graph graph = { .model = model, .layer = -1, .err = err };
    const struct architecture *architecture = graph.architecture = choose(&graph.source, checkpoint, err);
    if (!architecture || !read_common(&model->config, &graph.source, architecture, err)
        || !(architecture->latent || read_heads(&model->config, &graph.source, &architecture->defaults, err)))
        return false;
    model->config.architecture = architecture->name;
    model->layer = ARENA_NEW(&model->arena, struct layer, model->config.layers);
    int group = model->config.heads / (architecture->latent ? 1 : model->config.kv_heads);
    for (int i = 0; i < model->config.layers; i++)
        model->layer[i] = (struct layer){ .heads = model->config.heads,
                                          .kv_heads = model->config.kv_heads,
                                          .group = group,
                                          .head_dim = model->config.head_dim };
    kv_declared_read(model, checkpoint);
    bool described = architecture->describe(&graph);
    find_end(&graph);
    if (described && !graph.failed)
        return true;
    model_free(model);
    return false;
}

enum { WARNING_BYTES_MAX = 1024 };

void model_warn(struct model *model, const char *format, ...)
{
    char text[WARNING_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char **grown = ARENA_NEW(&model->arena, const char *, model->warning_count + 1); // there are few
    for (int i = 0; i < model->warning_count; i++)
        grown[i] = model->warnings[i];
    grown[model->warning_count++] = arena_text(&model->arena, text, strlen(text));
    model->warnings = grown;
}

void model_free(struct model *model)
{
    arena_free(&model->arena);
    *model = (struct model){ 0 };
}
