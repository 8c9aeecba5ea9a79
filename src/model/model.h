// SPDX-License-Identifier: Apache-2.0
// model/model.h: a checkpoint understood: its numbers, its layers, and the flat list of ops that makes a step.
// Only headers are read; tensors are referred to, not touched.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/memory.h"
#include "format/checkpoint.h"
#include "kernel/op.h"

// The numbers every architecture has. Each architecture's file fills what is its own.
struct model_config {
    const char *architecture; // "llama"
    int layers, hidden, heads, kv_heads, head_dim, rotated, feed_forward, vocabulary, context;
    double norm_epsilon;
    double norm_offset; // added to stored norm weights: Gemma's safetensors keep them as differences from 1
    double embed_scale;
    double attention_scale;
    double residual_scale, logit_scale;      // of what a block gives back, and of the head's result
    double attention_softcap, final_softcap; // 0: none
    bool attention_gated;                    // its result, by a sigmoid of what the layer reads
    bool rope_interleaved;                   // pairs of neighbours (llama GGUFs), else of halves
    int latent;              // latent attention: channels of a latent without its rotary dims; 0: heads have K and V
    int q_rank;              // of the queries' own low rank projection; 0: they have none
    int nope_dim, value_dim; // of a head: channels of q and k that rope leaves alone, and those of v
    struct model_experts {   // mixture of experts (kernel/op.h: route_args)
        int count, top_k, width;         // count 0: there are none
        int first_layer, moe_layer_freq; // which layers have them: every so many from this one on, counted from layer 0
        int shared_width;                // of those that every token goes through, as one; 0: there are none
        int latent;                      // channels that the others read and write (moe_latent_size); 0: hidden_size
        bool shared_gated;               // by a sigmoid of what the layer reads
        enum route_score score;
        int groups, topk_group, group_best;
        bool normalise;
        double scale;
    } experts;
    struct model_recurrent { // layers with a state (kernel/op.h: ssm_scan_args, gated_delta_args)
        bool delta;          // by the gated delta rule, else a state space
        int heads, groups, keys, values;
        bool interleaved;         // of the gated delta rule: a group's heads are that far apart
        int channels, conv_width; // of the short convolution
        double dt_min, dt_max;
    } recurrent;
    enum activation activation;
    enum dtype kv_dtype; // what `auto` means without a declaration: the model's own 16-bit type
};

// Where activations live during a step. Widths are in model.buffer_width; those of parts are all ranks' together.
enum buffer {
    BUFFER_X, // the residual stream
    BUFFER_H, // what a block reads and what it gives back
    BUFFER_Q,
    BUFFER_K,
    BUFFER_V,
    BUFFER_A, // attention's result
    BUFFER_Q_RANK,
    BUFFER_Q_HEADS, // latent attention: queries on their way to the latents' channels
    BUFFER_MIX,
    BUFFER_MIXED, // recurrent layers: what the short convolution reads, and what it gives
    BUFFER_DT,    // and how far each head moves on
    BUFFER_BETA,  // with the gated delta rule: how far each head's state is changed
    BUFFER_GATE,
    BUFFER_UP,     // with experts, of every slot of a token
    BUFFER_ROUTER, // experts' logits
    BUFFER_EXPERT,
    BUFFER_EXPERT_WEIGHT,
    BUFFER_PAIR,
    BUFFER_FIRST,         // who goes where: struct routes of kernel/op.h
    BUFFER_EXPERT_LATENT, // what experts read and give back, where that is not H
    BUFFER_SLOTS,         // what each slot's expert gives back
    BUFFER_SHARED,        // how much of the expert counts that every token goes through, where that is gated
    BUFFER_LAST,          // the rows that want logits
    BUFFER_LOGITS,
    BUFFER_PARTIAL,
    BUFFER_LOGITS_PART, // with several ranks: what each of them has of a sum, or of the logits
    BUFFER_COUNT
};

// A matrix of an op, or one of each expert: where its result goes and, where the file has them, its bias and its
// overall scale.
struct op_matrix {
    const struct tensor *tensor, *bias, *scale;
    enum buffer out;
    double factor; // multiplies the result; 0: nothing does
};

enum { OP_VECTORS_MAX = 2 }; // besides the first

// An op in the list. The table of ops (kernel/op.h) says which operand each of these buffers and tensors is bound to.
struct op {
    enum op_kind kind;
    int layer; // -1: before or after the layers
    enum buffer in, second, third, out;
    enum buffer routes; // the first of the four of struct routes, in its order
    bool on_outputs;    // works on the rows that want logits, not on all tokens
    int width, groups;  // of a row of `in`: groups runs of width
    int first;          // of embed: the token whose row is the table's first
    int rest;           // what a row, or of per-head linear each head, has besides
    int matrices;
    struct op_matrix matrix[LINEAR_OUTPUTS_MAX];
    const struct tensor *vector;
    const struct tensor *more[OP_VECTORS_MAX];
    enum activation activation; // of act_mul
    double offset;              // added to the values of `vector`
    bool adds;                  // of all_reduce: to what is there
    bool per_slot;              // of experts: `in` has a row for each slot of a token
    bool own_weights;           // of norm: each group has weights of its own
    bool gate_per_row;          // of act_mul: one value gates a whole row
    bool a_log;                 // `vector` holds log(-a)
};

// The kind says what a layer keeps for later tokens.
enum layer_kind { LAYER_ATTENTION, LAYER_STATE, LAYER_PLAIN }; // keys and values, a state, nothing

// One layer's attention, as the cache, the planner and the kernels need it, or its state.
struct layer {
    enum layer_kind kind;
    struct kv_state state; // of LAYER_STATE
    int heads, kv_heads, head_dim;
    int group, lead;     // heads that share a key/value head; of the first one's, those of another rank
    int latent;          // the first channels of K that are V (kv/layout.h); 0: V is apart
    int window;          // 0: full attention
    enum dtype kv_dtype; // what `auto` means for its cache: as the checkpoint declares, else 16 bit
    const struct tensor *k_scale, *v_scale; // of its cache, in formats that have one, as the file has them; NULL: 1
    const float *frequencies;               // (rotated / 2); NULL: no rotary embedding
    const float *short_frequencies; // the same for plans without longer texts than short_context; NULL: no others
    int short_context;
    float rope_magnitude;
};

// For texts of at most so many tokens.
static inline const float *layer_frequencies(const struct layer *layer, int length)
{
    return layer->short_frequencies && length <= layer->short_context ? layer->short_frequencies : layer->frequencies;
}

// Which part of a model this is, where several processes compute it (model/shard.h).
struct model_shard {
    int rank, ranks; // ranks 0: it is whole
    int first_head, heads, first_kv_head, kv_heads;
    size_t exchanged_bytes;        // that a rank sends for each token
    size_t exchanged_output_bytes; // and for each row of logits
    int replicated_count;
    const struct model_replica { // what other ranks have, too
        const char *what, *why;
        size_t bytes; // of weights
    } *replicated;
};

struct model {
    struct model_config config; // the whole model's
    struct model_shard shard;
    struct layer *layer; // (config.layers)
    struct op *ops;
    int op_count;
    int buffer_width[BUFFER_COUNT];
    bool imagined;                   // no weights were there: it can be planned, not run
    const char *kv_declared_unknown; // why `auto` cannot follow the checkpoint's declaration, or NULL
    const char *unused;              // how many tensors nibble has no use for, by kind, or NULL
    const char **warnings;           // sentences about the checkpoint
    int warning_count;
    struct arena arena;
};

bool model_describe(struct model *model, const struct checkpoint *checkpoint,
                    struct error *err); // on false nothing needs freeing
void model_free(struct model *model);

void model_warn(struct model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
