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
    const char *architecture;     // "llama"
    int layers, hidden, heads, kv_heads, head_dim, rotated, feed_forward, vocabulary, context;
    double norm_epsilon;
    double norm_offset;           // added to stored norm weights: Gemma's safetensors keep them as differences from 1
    double embed_scale;
    double attention_scale;
    double attention_softcap, final_softcap; // 0: none
    bool rope_interleaved;        // pairs of neighbours (llama GGUFs), else of halves
    enum activation activation;
    enum dtype kv_dtype;          // what `auto` means without a declaration: the model's own 16-bit type
};

// Where activations live during a step. Widths are in model.buffer_width.
enum buffer {
    BUFFER_X,      // the residual stream
    BUFFER_H,      // what a block reads and what it gives back
    BUFFER_Q, BUFFER_K, BUFFER_V,
    BUFFER_A,      // attention's result
    BUFFER_GATE, BUFFER_UP,
    BUFFER_LAST,   // the rows that want logits
    BUFFER_LOGITS,
    BUFFER_COUNT
};

// A matrix of an op: where its result goes and, where the file has them, its bias and its overall scale.
struct op_matrix {
    const struct tensor *tensor, *bias, *scale;
    enum buffer out;
};

struct op {
    enum op_kind kind;
    int layer;                     // -1: before or after the layers
    enum buffer in, second, out;   // linear: see matrix[].out
    bool on_outputs;               // works on the rows that want logits, not on all tokens
    int width, groups;             // of a row of `in`: groups runs of width
    int matrices;
    struct op_matrix matrix[LINEAR_OUTPUTS_MAX];
    const struct tensor *vector;   // norm
};

// One layer's attention, as the cache, the planner and the kernels need it.
struct layer {
    int heads, kv_heads, head_dim;
    int window;                    // 0: full attention
    enum dtype kv_dtype;           // what `auto` means for its cache: as the checkpoint declares, else 16 bit
    const float *frequencies;      // (rotated / 2)
    float rope_magnitude;
};

struct model {
    struct model_config config;
    struct layer *layer;           // (config.layers)
    struct op *ops;
    int op_count;
    int buffer_width[BUFFER_COUNT];
    bool imagined;                 // no weights were there: it can be planned, not run
    const char *kv_declared_unknown; // why `auto` cannot follow the checkpoint's declaration, or NULL
    struct arena arena;
};

bool model_describe(struct model *model, const struct checkpoint *checkpoint,
                    struct error *err); // on false nothing needs freeing
void model_free(struct model *model);

#endif
