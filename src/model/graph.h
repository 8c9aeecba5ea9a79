// SPDX-License-Identifier: Apache-2.0
// model/graph.h: how an architecture's file writes down its ops. Each call appends one op (or none, once something
// failed: the first sentence stays in graph.err and graph_done reports it), so that a layer reads as plain text.
#ifndef MODEL_GRAPH_H
#define MODEL_GRAPH_H

#include "model/model.h"
#include "model/names.h"
#include "model/rope.h"
#include "model/source.h"

struct architecture;

struct graph {
    struct model *model;
    const struct architecture *architecture;
    struct source source;
    const char *prefix;   // of safetensors names: "model." or what stands for it
    bool qkv_bias;        // q, k and v must have biases; elsewhere those that are there are used
    int layer;            // the layer being written, -1 outside
    int capacity;
    bool failed;
    struct error *err;
};

struct graph_output {
    enum buffer out;
    enum weight_name name;
    int rows;
};

void graph_embed(struct graph *graph);                                                    // tokens -> X
void graph_norm(struct graph *graph, enum buffer in, enum buffer out, enum weight_name name);
void graph_head_norm(struct graph *graph, enum buffer qk, enum weight_name name,
                     int heads); // each head by itself, in place
void graph_linear(struct graph *graph, enum buffer in, const struct graph_output *outputs, int count);
void graph_attention(struct graph *graph);                            // Q, K, V -> A: rope, kv_write, attention
void graph_act_mul(struct graph *graph);                              // act(GATE) * UP -> GATE
void graph_add(struct graph *graph, enum buffer out, enum buffer in); // out += in
void graph_logits(struct graph *graph);                               // X -> LOGITS: pick, norm, head, soft cap

// What most layers are made of.
void graph_qkv(struct graph *graph);          // H -> Q, K, V
void graph_output(struct graph *graph);       // A -> H
void graph_feed_forward(struct graph *graph); // H -> H, gated

// X -> H: norm, q, k and v (normed per head with head_norms), attention, output.
void graph_attention_block(struct graph *graph, bool head_norms);

// The whole of a plain layer: attention block, add; norm, feed forward, add.
void graph_plain_layer(struct graph *graph, bool head_norms);

// Writes every layer with write_layer, between embed and logits. False when anything was missing or of the wrong shape.
bool graph_write(struct graph *graph, void (*write_layer)(struct graph *graph));

#endif
