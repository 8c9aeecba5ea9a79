// SPDX-License-Identifier: Apache-2.0
// model/architecture.h: what an architecture's file offers, and the questions it may ask while it describes itself.
#ifndef MODEL_ARCHITECTURE_H
#define MODEL_ARCHITECTURE_H

#include "model/graph.h"

// What a published config.json leaves out because the architecture's own default is meant; 0: it may not.
struct architecture_defaults {
    int heads, kv_heads, head_dim, context;
    double rope_theta;
};

struct architecture {
    const char *name;
    const char *model_types[4]; // config.json's model_type
    const char *gguf;           // general.architecture
    bool ties_head;             // the default of tie_word_embeddings
    struct architecture_defaults defaults;
    // Fills config and layers from the source beyond what all have in common, then writes the graph.
    bool (*describe)(struct graph *graph);
};

extern const struct architecture llama_architecture, mistral_architecture, qwen2_architecture, qwen3_architecture,
    gemma2_architecture, gemma3_architecture;

// Windows per layer: from config.json's layer_types where it has them, else windowed(layer) decides.
// window 0: the model has none, and layer_types must not name any.
bool architecture_set_windows(struct graph *graph, int window, bool (*windowed)(const struct graph *graph, int layer));
bool architecture_every_layer(const struct graph *graph, int layer);

// The same turning for every layer, from the global rope.
bool architecture_set_rope(struct graph *graph);

// act: config.json's hidden_act (or hidden_activation) must be this one.
bool architecture_check_activation(struct graph *graph, const char *json_key, const char *word);

#endif
