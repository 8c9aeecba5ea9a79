// SPDX-License-Identifier: Apache-2.0
// model/architecture.h: the interface between an architecture's file (llama.c, qwen.c ...) and the model loader, with
// helpers for describing architectures.
#ifndef MODEL_ARCHITECTURE_H
#define MODEL_ARCHITECTURE_H

#include "model/graph.h"

// The architecture's defaults for keys that config.json may leave out; 0: the key is required.
struct architecture_defaults {
    int heads, kv_heads, head_dim, context;
    double rope_theta;
    double rotated_share;    // partial_rotary_factor
    bool experts_only;       // every layer has experts, so that intermediate_size is not needed
    bool rope_not_truncated; // YaRN's correction range is not rounded (truncate = false); GGUF has no key for that
};

// A weight whose safetensors name differs from model/names.h.
struct architecture_name {
    enum weight_name name;
    const char *json;
};

struct architecture {
    const char *name;
    const char *model_types[4];            // config.json's model_type
    const char *gguf;                      // general.architecture
    bool ties_head;                        // the default of tie_word_embeddings
    bool latent;                           // multi-head latent attention (MLA): `describe` reads the head sizes
    const struct architecture_name *names; // terminated by json == NULL; NULL if there are none
    int (*count_layers)(const struct source *source); // for config.json without num_hidden_layers; NULL otherwise
    bool by_layer;                                    // GGUF integers may be arrays with a value per layer
    struct architecture_defaults defaults;
    // Fills the architecture's own part of config and layers from the source, then writes the graph.
    bool (*describe)(struct graph *graph);
};

extern const struct architecture llama_architecture, mistral_architecture, qwen2_architecture, qwen3_architecture,
    gemma2_architecture, gemma3_architecture, phi3_architecture, olmo2_architecture, granite_architecture,
    smollm3_architecture, mixtral_architecture, qwen3_moe_architecture, gpt_oss_architecture, deepseek_v2_architecture,
    deepseek_v3_architecture, qwen3_next_architecture, qwen3_5_architecture, qwen3_5_moe_architecture,
    nemotron_h_architecture, nemotron_h_moe_architecture;

// Sliding windows per layer: from config.json's layer_types if present, otherwise where windowed(layer) is true. window
// 0: the model has none, and layer_types must not name one.
bool architecture_set_windows(struct graph *graph, int window, bool (*windowed)(const struct graph *graph, int layer));
bool architecture_every_layer(const struct graph *graph, int layer);

// The same rotary embedding for every layer.
bool architecture_set_rope(struct graph *graph);

// Reads the mixture of experts: the number of experts (may be 0), top_k, and the experts' width: intermediate_size
// unless the config has width_key. The number's key is num_local_experts, or count_key. Router scores are softmaxes,
// and the top-k weights are normalised.
bool architecture_read_experts(struct graph *graph, const char *count_key, const char *width_key);

// Skips multi-token prediction (MTP) layers, which a GGUF counts as layers and nibble does not run.
bool architecture_skip_mtp(struct graph *graph);

// Writes a layer of Mixtral, whose GGUFs have the architecture llama.
void moe_write_mixtral_layer(struct graph *graph);

// True if the layer being written has experts, for Qwen MoE models.
bool moe_has_experts(const struct graph *graph);

// Checks that config.json's hidden_act (or hidden_activation) is `word`.
bool architecture_check_activation(struct graph *graph, const char *json_key, const char *word);

#endif
