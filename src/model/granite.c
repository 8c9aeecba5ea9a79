// SPDX-License-Identifier: Apache-2.0
// model/granite.c: Granite 3: a plain layer in which the embedding, scores, what blocks give back and logits have
// multipliers of their own.
#include "model/architecture.h"

static void write_layer(struct graph *graph) { graph_plain_layer(graph, false); }

static bool read_multipliers(struct graph *graph)
{
    const struct source *source = &graph->source;
    struct model_config *config = &graph->model->config;
    double divisor = 1;
    if (source->json)
        config->attention_scale = 1; // what config.json does not say
    if (!source_real(source, "embedding_multiplier", "embedding_scale", &config->embed_scale, graph->err)
        || !source_real(source, "attention_multiplier", "attention.scale", &config->attention_scale, graph->err)
        || !source_real(source, "residual_multiplier", "residual_scale", &config->residual_scale, graph->err)
        || !source_real(source, "logits_scaling", "logit_scale", &divisor, graph->err))
        return false;
    config->logit_scale = 1 / divisor;
    return (config->embed_scale > 0 && config->attention_scale > 0 && config->residual_scale > 0 && divisor > 0)
        || fail(graph->err,
                "the multipliers of embedding (%g), scores (%g), blocks (%g) and logits (1 / %g) must be "
                "positive",
                config->embed_scale, config->attention_scale, config->residual_scale, divisor);
}

static bool describe(struct graph *graph)
{
    struct model_config *config = &graph->model->config;
    config->activation = ACT_SILU;
    config->rope_interleaved = graph->source.checkpoint->gguf; // its q and k rows were reordered for that
    return architecture_check_activation(graph, "hidden_act", "silu") && read_multipliers(graph)
        && architecture_set_windows(graph, 0, architecture_every_layer) && architecture_set_rope(graph)
        && graph_write(graph, write_layer);
}

const struct architecture granite_architecture = {
    .name = "granite", .model_types = { "granite" }, .gguf = "granite", .describe = describe
};
