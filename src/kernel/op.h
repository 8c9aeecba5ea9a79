// SPDX-License-Identifier: Apache-2.0
// kernel/op.h: the vocabulary of ops. Architectures speak it, kernels answer it: one argument struct each, with
// everything a kernel may read or write. Arguments are bound once; from step to step only the batch behind them
// changes. Activations are row by row: (rows, width). They are f32; on a GPU, where all addresses are the device's,
// those that linear layers read and write are bfloat16, and the residual stream and the logits f32
// (kernel/cuda/params.h).
#ifndef KERNEL_OP_H
#define KERNEL_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/layout.h"

//    id          word
#define OPS(X)                 \
    X(EMBED,     "embed")      \
    X(NORM,      "norm")       \
    X(LINEAR,    "linear")     \
    X(ROPE,      "rope")       \
    X(KV_WRITE,  "kv_write")   \
    X(ATTENTION, "attention")  \
    X(ACT_MUL,   "act_mul")    \
    X(ADD,       "add")        \
    X(PICK,      "pick")       \
    X(SOFTCAP,   "softcap")

enum op_kind {
#define X(id, word) OP_##id,
    OPS(X)
#undef X
    OP_COUNT
};

const char *op_word(enum op_kind kind);

enum { KV_CLASSES_MAX = 16, LINEAR_OUTPUTS_MAX = 3, HEAD_DIM_MAX = 512, LINEAR_IN_MAX = 1 << 16 };

struct cuda_batch;
struct act_mul_args;
struct add_args;

// The tokens of one step. Rows of a sequence are consecutive, in the order of their positions.
struct batch {
    int tokens;
    const int32_t *ids;       // (tokens)
    const int32_t *positions; // (tokens)
    int sequences;
    const struct batch_sequence {
        int first, count;                       // its rows
        const int32_t *pages[KV_CLASSES_MAX];   // per class: the page table
    } *sequence;
    int outputs;              // rows whose logits are wanted
    const int32_t *output_rows;
    const struct cuda_batch *on_device; // the same in a GPU's memory; NULL on CPUs
};

// A weight matrix: (rows, cols), a row is one output. It lies as in the file, or as the packing of its kernel has it.
struct weight {
    enum dtype dtype;
    int rows, cols;
    const void *data;
    float scale;              // multiplies every value; 1 for most formats
};

// A layer's place in the cache.
struct kv_place {
    uint8_t *pool;            // the class's pages
    size_t page_bytes, layer_offset;
    int class_index;          // which of batch_sequence.pages
    struct kv_layout layout;
    float k_scale, v_scale;   // per layer, for formats that have one
};

// out = table[id] * scale
struct embed_args {
    const struct batch *batch;
    struct weight table;
    float scale;
    float *out;
};

// out = x / rms(x) * weight, over each of `groups` runs of `width` in a row
struct norm_args {
    const int *rows;
    const float *x;
    const float *weight;      // (width)
    float *out;               // may be x
    int groups, width;
    float epsilon;
    bool f32_x;               // on a GPU: x is f32 (the residual stream), else bfloat16; out is bfloat16
};

// y = W x + bias, for up to three matrices that read the same x. A kernel may do what stands around it in passing: then
// the neighbours' arguments are here, and nobody else does them.
struct linear_args {
    const int *rows;
    const float *x;
    int in;
    void *scratch;            // as much as the kernel asks for; shared by all ops of a step
    bool f32_y;               // on a GPU: y is f32 (logits), else bfloat16
    int outputs;
    struct linear_output {
        struct weight weight;
        const float *bias;    // (weight.rows) or NULL
        float *y;
    } output[LINEAR_OUTPUTS_MAX];
    const struct norm_args *norm;       // before it: x is what it reads
    const struct act_mul_args *act_mul; // after it, of its two outputs: written to its `out`
    const struct add_args *add;         // after it: to its x
};

// Turns pairs of channels by position * frequency, in place: q and k. The pairs of the result are always halves apart,
// (i, i + rotated/2), whatever the order they came in: the cache then holds a model's keys in one order, and blocks
// that share a scale hold the same channels, whichever file they came from.
struct rope_args {
    const struct batch *batch;
    float *q, *k;
    int heads, kv_heads, head_dim;
    int rotated;              // channels that turn, from the first on; the rest stay
    bool interleaved;         // pairs come as neighbours, (2i, 2i+1)
    const float *frequencies; // (rotated / 2), radians per position
    float magnitude;          // of the turned channels, 1 for most
};

// Stores k and v of the batch's tokens in their pages, in the cache's formats
struct kv_write_args {
    const struct batch *batch;
    const float *k, *v;
    struct kv_place cache;
    const struct rope_args *rope; // before it, where the kernel does that too
};

// out = softmax(cap(q K * scale)) V over what the cache holds, the token's own K and V included. A sink is a score that
// takes part in the softmax and has no value.
struct attention_args {
    const struct batch *batch;
    const float *q;
    float *out;
    int heads;                // a multiple of the cache's kv heads, which share them in order
    float scale;
    int window;               // tokens a token sees, itself included; 0: all
    float softcap;            // 0: none
    const float *sinks;       // (heads), NULL: none
    struct kv_place cache;
    void *scratch;            // as much as the kernel asks for; shared by all ops of a step
};

enum activation { ACT_SILU, ACT_GELU_TANH };

// out = act(gate) * up
struct act_mul_args {
    const int *rows;
    const float *gate, *up;
    float *out;
    int width;
    enum activation act;
};

// x += y
struct add_args {
    const int *rows;
    float *x;
    const float *y;
    int width;
};

// out = the rows that want logits
struct pick_args {
    const struct batch *batch;
    const float *x;
    float *out;
    int width;
};

// x = cap * tanh(x / cap)
struct softcap_args {
    const int *rows;
    float *x;
    int width;
    float cap;
};

union op_args {
    struct embed_args embed;
    struct norm_args norm;
    struct linear_args linear;
    struct rope_args rope;
    struct kv_write_args kv_write;
    struct attention_args attention;
    struct act_mul_args act_mul;
    struct add_args add;
    struct pick_args pick;
    struct softcap_args softcap;
};

#endif
