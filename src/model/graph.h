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
    const char *prefix; // of safetensors names: "model." or what stands for it
    struct find *find;  // what looking for weights needs (model/tensor_lookup.c)
    bool sinks;         // attention has them
    bool qkv_bias;      // q, k and v must have biases; elsewhere those that are there are used
    int layer;          // the layer being written, -1 outside
    int capacity;
    bool failed;
    struct error *err;
};

struct graph_output {
    enum buffer out;
    enum weight_name name;
    int rows;
    double factor; // multiplies the result; 0: nothing does
};

// Any op of the table (kernel/op.h): the others are made of it.
void graph_append(struct graph *graph, struct op op);

void graph_embed(struct graph *graph); // tokens -> X
void graph_norm(struct graph *graph, enum buffer in, enum buffer out, enum weight_name name);
void graph_head_norm(struct graph *graph, enum buffer qk, enum weight_name name,
                     int heads); // each head by itself, in place
void graph_latent_norm(struct graph *graph, enum buffer in, enum weight_name name,
                       int width); // the first channels of a row, in place
void graph_result_norm(struct graph *graph, enum buffer in, enum weight_name name, int groups,
                       int width); // of each head's result, in place, by weights that are what they are
void graph_group_norm(struct graph *graph, enum buffer in, enum weight_name name, int groups,
                      int width); // the same where each group has weights of its own
void graph_heads(struct graph *graph, enum buffer in, struct op_matrix matrix,
                 int width); // the first channels of each head by a matrix of its own
void graph_linear(struct graph *graph, enum buffer in, const struct graph_output *outputs, int count);
void graph_linear_of(struct graph *graph, enum buffer in, int width, const struct graph_output *outputs,
                     int count); // rows are so wide; in most buffers as wide as those are
void graph_matrices(struct graph *graph, enum buffer in, const struct op_matrix *matrices,
                    int count); // a linear of matrices that were found already
void graph_fused(struct graph *graph, const struct graph_output *outputs,
                 int count); // of H; matrices that the file has as one of that name, the first one's rows first
void graph_attention(struct graph *graph); // Q, K (and V) -> A: rope, transform, kv_write, attention
void graph_conv(struct graph *graph, enum weight_name name, const struct tensor *bias);          // MIX -> MIXED
void graph_delta(struct graph *graph, const struct tensor *decay, const struct tensor *dt_bias); // MIXED -> MIX
void graph_scan(struct graph *graph, const struct tensor *decay, const struct tensor *dt_bias,
                const struct tensor *skip); // MIXED, TIME -> MIX; skip: scan's d
void graph_act_mul(struct graph *graph);    // act(GATE) * UP -> GATE
void graph_gate(struct graph *graph, enum activation activation, enum buffer gate, enum buffer x,
                int width);                                                            // x *= activation(gate)
void graph_gate_rows(struct graph *graph, enum buffer gate, enum buffer x, int width); // a sigmoid per row
void graph_add(struct graph *graph, enum buffer out, enum buffer in);                  // out += in
void graph_copy(struct graph *graph);                                                  // X -> H, as it is
void graph_logits(struct graph *graph); // X -> LOGITS: pick, norm, head, soft cap

// Most layers are made of these blocks.
void graph_qkv(struct graph *graph);          // H -> Q, K, V
void graph_output(struct graph *graph);       // A -> H
void graph_feed_forward(struct graph *graph); // H -> H, gated
void graph_gated(struct graph *graph, const enum weight_name names[3], int width,
                 enum buffer out); // the same with any gate, up and down
void graph_ungated(struct graph *graph, const enum weight_name names[2], int width,
                   enum buffer out); // H -> out: up, its activation times itself, down

// H -> H: the experts of each token, found already: gate, up and down. `bias` is added for expert selection only; NULL:
// there is none.
void graph_experts(struct graph *graph, enum weight_name router, const struct tensor *bias,
                   const struct op_matrix matrices[3]);

// Its two parts: H -> who goes where; and what each goes through, which reads a buffer and gives it back: three
// matrices, or up and down alone.
void graph_route(struct graph *graph, enum weight_name router, const struct tensor *bias);
void graph_routed_experts(struct graph *graph, enum buffer in_out, int width, const struct op_matrix *matrices,
                          int count);

// X -> H: norm, q, k and v (normed per head with head_norms), attention, output.
void graph_attention_block(struct graph *graph, bool head_norms);

// The whole of a plain layer: attention block, add; norm, feed forward, add.
void graph_plain_layer(struct graph *graph, bool head_norms);

// Writes every layer with write_layer, between embed and logits. False when anything was missing or of the wrong shape.
bool graph_write(struct graph *graph, void (*write_layer)(struct graph *graph));

#endif
