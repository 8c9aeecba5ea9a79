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
// clang-format off
#define OPS(X)                 \
    X(EMBED,     "embed")      \
    X(NORM,      "norm")       \
    X(LINEAR,    "linear")     \
    X(PER_HEAD_LINEAR,     "per_head_linear")      \
    X(ROPE,      "rope")       \
    X(TRANSFORM, "transform")  \
    X(KV_WRITE,  "kv_write")   \
    X(ATTENTION, "attention")  \
    X(ACT_MUL,   "act_mul")    \
    X(ADD,       "add")        \
    X(PICK,      "pick")       \
    X(SOFTCAP,   "softcap")    \
    X(COPY,      "copy")       \
    X(ROUTE,     "route")      \
    X(EXPERTS,   "experts")    \
    X(COMBINE,   "combine")    \
    X(CONV,      "conv")       \
    X(SSM_SCAN,      "ssm_scan")       \
    X(GATED_DELTA,     "gated_delta")      \
    X(ALL_REDUCE,    "all_reduce")     \
    X(ALL_GATHER,      "all_gather")
// clang-format on

enum op_kind {
#define X(id, word) OP_##id,
    OPS(X)
#undef X
        OP_COUNT
};

const char *op_word(enum op_kind kind);

enum { KV_CLASSES_MAX = 16, LINEAR_OUTPUTS_MAX = 3, HEAD_DIM_MAX = 512, LINEAR_IN_MAX = 1 << 16 };
enum { LATENT_DIM_MAX = HEAD_DIM_MAX + 64 }; // of a latent, its turned channels included: a key
enum { GATED_DELTA_KEYS_MAX = 256, SSM_SCAN_KEYS_MAX = 256, CONV_KERNEL_MAX = 16 };
enum { EXPERTS_MAX = 512, EXPERTS_TOP_K_MAX = 32, EXPERTS_GROUPS_MAX = 32, EXPERTS_OUTPUTS_MAX = 2 };

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
        int first, count;                     // its rows
        const int32_t *pages[KV_CLASSES_MAX]; // per class: the page table
    } *sequence;
    int page_tokens[KV_CLASSES_MAX]; // per class: how many tokens a page covers
    int pages_end[KV_CLASSES_MAX];   // and how many pages of a sequence it has at most; 0: all
    int outputs;                     // rows whose logits are wanted
    const int32_t *output_rows;
    const struct cuda_batch *on_device; // the same in a GPU's memory; NULL on CPUs
};

// A weight matrix: (rows, cols), a row is one output. It lies as in the file, or as the packing of its kernel has it.
struct weight {
    enum dtype dtype;
    int rows, cols;
    const void *data;
    float scale; // multiplies every value; 1 for most formats
};

// A layer's place in the cache.
struct kv_place {
    uint8_t *pool; // the class's pages
    size_t page_bytes, layer_offset;
    int class_index; // which of batch_sequence.pages
    struct kv_layout layout;
    float k_scale, v_scale; // per layer, for formats that have one
};

// A recurrent layer's place among the states (kernel/state.h). The rows that a sequence has in a step lie in one page.
struct state_place {
    uint8_t *pool; // the class's pages
    size_t page_bytes, layer_offset;
    int class_index; // which of batch_sequence.pages
    int page_tokens;
    struct kv_state layout;
};

// out = table[id - first] * scale, or nothing but zeros for tokens that the table does not have
struct embed_args {
    const struct batch *batch;
    struct weight table;
    int first;
    float scale;
    float *out;
};

// out = x / rms(x) * weight, over each of `groups` runs of `width` in a row
struct norm_args {
    const int *rows;
    const float *x;
    const float *weight; // (width), or with own_weights (groups, width)
    bool own_weights;
    float *out; // may be x
    int groups, width;
    int gap; // values between a row's end and the next one, of x and of out: a multiple of 8
    float epsilon;
    bool f32_x; // on a GPU: x is f32 (the residual stream), else bfloat16; out is bfloat16
};

// y = W x + bias, for up to three matrices that read the same x. A kernel may do what stands around it in passing: then
// the neighbours' arguments are here, and nobody else does them.
struct linear_args {
    const int *rows;
    const float *x;
    int in;
    void *scratch; // as much as the kernel asks for; shared by all ops of a step
    bool f32_y;    // on a GPU: y is f32 (logits), else bfloat16
    int outputs;
    struct linear_output {
        struct weight weight;
        const float *bias; // (weight.rows) or NULL
        float *y;
    } output[LINEAR_OUTPUTS_MAX];
    const struct norm_args *norm;       // before it: x is what it reads
    const struct act_mul_args *act_mul; // after it, of its two outputs: written to its `out`
    const struct add_args *add;         // after it: to its x
};

// y = W x for each head by itself, which has a small matrix of its own. What else there is of a head in x comes behind
// it as it is.
struct per_head_linear_args {
    const int *rows;
    const float *x; // (rows, heads, in + rest)
    float *y;       // (rows, heads, out + rest)
    int heads, in, out, rest;
    struct weight weight; // (heads * out, in)
};

// Turns pairs of channels by position * frequency, in place: q and k. The pairs of the result are always halves apart,
// (i, i + rotated/2), whatever the order they came in: the cache then holds a model's keys in one order, and blocks
// that share a scale hold the same channels, whichever file they came from.
struct rope_args {
    const struct batch *batch;
    float *q, *k;
    int heads, kv_heads, head_dim;
    int first, rotated;       // channels that turn, from which on and how many; the rest stay
    bool interleaved;         // pairs come as neighbours, (2i, 2i+1)
    const float *frequencies; // (rotated / 2), radians per position
    float magnitude;          // of the turned channels, 1 for most
};

// What keys are stored as, and queries with them, in place: k = H (k - centre), q = H q. The centre adds the same to
// all scores of a query, which softmax does not see; H changes no product, for it is orthonormal: the Hadamard matrix
// in natural order, H[i][j] = (-1)^popcount(i & j) / sqrt(block), on each block of a vector.
struct transform_args {
    const int *rows;
    float *q, *k;
    int heads, kv_heads, head_dim;
    const float *centre; // (kv_heads, head_dim) or NULL
    int block;           // a power of two that divides head_dim; 0: nothing is rotated
};

// Stores k and v of the batch's tokens in their pages, in the cache's formats; of latents k alone
struct kv_write_args {
    const struct batch *batch;
    const float *k, *v;
    struct kv_place cache;
    struct kv_place sink; // of a sequence's first pages: a class of its own has those, in its own format
    int sink_pages;       // as many of them; 0: all are in `cache`
    bool scale_search;    // scales of least square error, for formats that leave a choice (kernel/ref/kv_codec.h)
    const struct rope_args *rope;           // before it, where the kernel does that too
    const struct transform_args *transform; // the same, and after rope
};

// out = softmax(cap(q K * scale)) V over what the cache holds, the token's own K and V included. A sink is a score that
// takes part in the softmax and has no value.
struct attention_args {
    const struct batch *batch;
    const float *q;
    float *out;
    int heads;
    int group, lead; // so many share a head of the cache, in order. The first may have `lead` fewer, and the
                     // last fewer, too: others of their groups are another rank's (model/shard.h)
    float scale;
    int window;         // tokens a token sees, itself included; 0: all
    float softcap;      // 0: none
    const float *sinks; // (heads), NULL: none
    struct kv_place cache;
    struct kv_place sink; // of a sequence's first pages: a class of its own has those, in its own format
    int sink_pages;       // as many of them; 0: all are in `cache`
    void *scratch;        // as much as the kernel asks for; shared by all ops of a step
};

// Those that share a head of the cache.
static inline void attention_heads(const struct attention_args *args, int kv_head, int *first, int *end)
{
    int begin = kv_head * args->group - args->lead;
    *first = begin > 0 ? begin : 0;
    *end = begin + args->group < args->heads ? begin + args->group : args->heads;
}

enum activation { ACT_SILU, ACT_GELU_TANH, ACT_CLAMPED, ACT_SIGMOID, ACT_RELU };

// out = act(gate) * up. ACT_CLAMPED bounds both: with g = min(gate, 7) and u = up within -7 and 7 it is
// g * sigmoid(1.702 g) * (u + 1). Where gate and up are the same, ACT_RELU gives squares: relu(x) * x.
#define ACT_CLAMPED_LIMIT 7.0f
#define ACT_CLAMPED_SLOPE 1.702f
struct act_mul_args {
    const int *rows;
    const float *gate, *up;
    float *out; // may be either
    int width;
    bool gate_per_row; // with ACT_SIGMOID alone: gate is (rows), one for all of a row's values
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

// out = x: the residual stream where a linear is to read it as it is; on a GPU it becomes bfloat16
struct copy_args {
    const int *rows;
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

// Where several processes compute one model (model/shard.h): what each of them had of a result lies one after the
// other, `stride` values apart. out = the sum of all, in the order of ranks, whoever was first; or out += it.
struct all_reduce_args {
    const int *rows;
    const float *parts; // (ranks, stride): of each (rows, width)
    size_t stride;
    int ranks, width;
    float *out;   // (rows, width)
    bool adds;    // to what is there: the residual stream
    bool f32_out; // on a GPU: out is f32 (the residual stream), else bfloat16
};

// out = the columns of all, side by side: of the units of columns each rank has its share (kernel_share).
enum { JOIN_UNIT = 16 };
struct all_gather_args {
    const int *rows;
    const float *parts; // (ranks, stride): of each (rows, its columns)
    size_t stride;
    int ranks, width;
    float *out; // (rows, width)
};

// Mixture of experts: which of them each token goes through, and how much each counts. A slot is one of a token's
// choices, and token * chosen + slot the number of a pair. The pairs of one expert stand together, so that its weights
// are read once for all of them and those of an expert that nobody chose not at all.
struct routes {
    int experts, chosen;
    int32_t *expert; // (rows, chosen), those of a token all different, the highest score first
    float *share;    // (rows, chosen)
    int32_t *first;  // (experts + 1): where the pairs of each expert begin in `pair`
    int32_t *pair;   // (rows * chosen): every pair, by expert; in which order within one does not matter
};

enum route_score { ROUTE_SOFTMAX, ROUTE_SIGMOID };

// Scores of a token's experts by softmax or sigmoid of the router's logits; with a bias, which counts for the choice
// alone, the highest ones are chosen (of equals the first), and their scores are the shares. Experts may come in groups
// of which only some are looked at: those whose `group_best` highest add up to most.
struct route_args {
    const int *rows;
    const float *logits; // (rows, experts); f32 on a GPU, too
    const float *bias;   // (experts) or NULL
    enum route_score score;
    int groups, groups_chosen, group_best; // 1 group: all experts are looked at
    bool normalise;                        // shares are divided by their sum
    float scale;                           // of shares, after that
    struct routes routes;
};

// y = W[expert] x + bias[expert] for every pair, for up to two matrices of each expert that read the same x.
struct experts_args {
    const int *rows; // tokens
    const float *x;  // (rows, in), or, with x_per_slot, (rows, chosen, in)
    bool x_per_slot;
    int in;
    struct routes routes;
    void *scratch; // as much as the kernel asks for; shared by all ops of a step
    int outputs;
    struct experts_output {
        struct weight weight; // one expert's shape; those of all lie one after the other, packed each by itself
        const float *scales;  // (experts): each expert's own besides weight.scale; NULL: none
        const float *bias;    // (experts, weight.rows) or NULL
        float *y;             // (rows, chosen, weight.rows)
    } output[EXPERTS_OUTPUTS_MAX];
};

// out = the sum over slots of share * x
struct combine_args {
    const int *rows;
    const float *x; // (rows, chosen, width)
    float *out;     // (rows, width)
    int width;
    bool f32_out; // on a GPU: out is f32 (a part of several ranks' sums), else bfloat16
    struct routes routes;
};

// A short convolution over each channel's last inputs, those of earlier tokens from the state, and SiLU of the result:
// out = silu(bias + sum of kernel[i] * x[token - taps + 1 + i]), in this order. The last inputs become the state.
struct conv_args {
    const struct batch *batch;
    const float *x;      // (rows, channels), as the state's layout has them
    float *out;          // (rows, channels), not x
    const float *kernel; // (taps, channels): one more than the state's inputs, the newest last
    const float *bias;   // (channels) or NULL
    struct state_place state;
};

// A state space (Mamba 2): token by token the matrix S of each head, (keys, values), becomes
//   S = exp(a dt) S + b (dt x)^T, and out = c S + d x, summed over keys in order,
// with dt = softplus(dt + dt_bias) within its bounds. Heads share b and c in groups, in order.
struct ssm_scan_args {
    const struct batch *batch;
    const float *mixed; // (rows, heads * values + 2 * groups * keys): x, then b and c of each group
    const float *time;  // (rows, heads): dt
    float *out;         // (rows, heads * values)
    int groups;
    const float *a, *d, *dt_bias; // (heads)
    float dt_min, dt_max;
    struct state_place state; // its layout has heads, keys and values
};

// The gated delta rule: token by token the matrix S of each head, (keys, values), becomes decay S, and then is changed
// so that it recalls v for k, or a part of the way: S += k (beta (v - k S))^T. out = q S. Sums run over keys in order.
// q and k are brought to length 1, q besides divided by sqrt(keys); decay = exp(a softplus(time + dt_bias)), and beta
// is the sigmoid of what is given. Heads share q and k in groups.
#define GATED_DELTA_EPSILON 1e-6f // added to squares of lengths
struct gated_delta_args {
    const struct batch *batch;
    const float *mixed;       // (rows, 2 * groups * keys + heads * values): q of each group, k of each, v of each head
    const float *time, *beta; // (rows, heads)
    float *out;               // (rows, heads * values)
    int groups;
    bool in_turns;            // head h is of group h % groups; else those of a group stand together
    const float *a, *dt_bias; // (heads)
    struct state_place state; // its layout has heads, keys and values
};

union op_args {
    struct embed_args embed;
    struct norm_args norm;
    struct linear_args linear;
    struct per_head_linear_args per_head_linear;
    struct rope_args rope;
    struct transform_args transform;
    struct kv_write_args kv_write;
    struct attention_args attention;
    struct act_mul_args act_mul;
    struct add_args add;
    struct pick_args pick;
    struct softcap_args softcap;
    struct copy_args copy;
    struct route_args route;
    struct experts_args experts;
    struct combine_args combine;
    struct conv_args conv;
    struct ssm_scan_args ssm_scan;
    struct gated_delta_args gated_delta;
    struct all_reduce_args all_reduce;
    struct all_gather_args all_gather;
};

#endif
