// SPDX-License-Identifier: Apache-2.0
// model/architecture.h: what an architecture's file offers, and the questions it may ask while it describes itself.
#ifndef MODEL_ARCHITECTURE_H
#define MODEL_ARCHITECTURE_H

#include "model/graph.h"

// What a published config.json leaves out because the architecture's own default is meant; 0: it may not.
struct architecture_defaults {
    int heads, kv_heads, head_dim, context;
    double rope_theta;
    double rotated_share;    // of a head's channels
    bool experts_only;       // no layer is without experts, so that nobody needs such a layer's width
    bool rope_not_truncated; // yarn's corrections need not be at whole channels; a GGUF does not say it
};

// A weight that has another name in its safetensors than in model/names.h.
struct architecture_name {
    enum weight_name name;
    const char *json;
};

struct architecture {
    const char *name;
    const char *model_types[4];            // config.json's model_type
    const char *gguf;                      // general.architecture
    bool ties_head;                        // the default of tie_word_embeddings
    bool latent;                           // its heads have no keys and values of their own: describe reads their sizes
    const struct architecture_name *names; // ends where json is NULL; NULL: there are none
    int (*count_layers)(const struct source *source); // of a config.json without their number; NULL: it has it
    bool by_layer;                                    // of numbers a GGUF may have one for each layer
    struct architecture_defaults defaults;
    // Fills config and layers from the source beyond what all have in common, then writes the graph.
    bool (*describe)(struct graph *graph);
};

extern const struct architecture llama_architecture, mistral_architecture, qwen2_architecture, qwen3_architecture,
    gemma2_architecture, gemma3_architecture, phi3_architecture, olmo2_architecture, granite_architecture,
    smollm3_architecture, mixtral_architecture, qwen3_moe_architecture, gpt_oss_architecture, deepseek_v2_architecture,
    deepseek_v3_architecture, qwen3_next_architecture, qwen3_5_architecture, qwen3_5_moe_architecture,
    nemotron_h_architecture, nemotron_h_moe_architecture;

// Windows per layer: from config.json's layer_types where it has them, else windowed(layer) decides.
// window 0: the model has none, and layer_types must not name any.
bool architecture_set_windows(struct graph *graph, int window, bool (*windowed)(const struct graph *graph, int layer));
bool architecture_every_layer(const struct graph *graph, int layer);

// The same turning for every layer, from the global rope.
bool architecture_set_rope(struct graph *graph);

// How many experts there are (none is possible), how many of them a token goes through and how wide they are: as wide
// as a layer without experts, unless the key says otherwise. Their number is num_local_experts, or has another key,
// too. Scores are softmaxes, and shares add up to 1.
bool architecture_read_experts(struct graph *graph, const char *count_key, const char *width_key);

// A GGUF counts the layers that guess ahead, which are not run.
bool architecture_leave_guessing(struct graph *graph);

// What a layer of Mixtral is, whose GGUFs call themselves llama.
void moe_write_mixtral_layer(struct graph *graph);

// Whether the layer that is being written has experts, in models of Qwen that have any.
bool moe_has_experts(const struct graph *graph);

// act: config.json's hidden_act (or hidden_activation) must be this one.
bool architecture_check_activation(struct graph *graph, const char *json_key, const char *word);

#endif
