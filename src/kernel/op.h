// SPDX-License-Identifier: Apache-2.0
// kernel/op.h: the table of ops. Per op: its argument struct, with everything a kernel may read or write; its operands;
// its numbers; and a line in OPS. Architectures emit ops (model/graph.h), kernels implement them (kernel/kernel.h), and
// these follow from the table: binding (engine/program.c), data flow (model/flow.c), shapes and costs (plan/op_shape.c,
// plan/cost.c), test cases and their upload to a GPU (kernel/testcase*.c), fault injection, tolerances, doc/ops.md.
//
// Arguments are bound once; from step to step only the batch behind them changes. Activations are row by row: (rows,
// width). They are f32; on a GPU, where all addresses are the device's, those that linear layers read and write are
// bfloat16, and the residual stream and the logits f32 (kernel/cuda/params.h).
//
// In a list of operands X is called with
//   role, member, slot   enum operand_role, member of the argument struct, enum op_slot: all without their prefix
//   rows, width          enum operand_rows, and elements of a row as C over the arguments `a`; for weights: how many
//   type                 enum operand_type as C over `a`
// EACH takes array and member in place of member, and is for what there is one of per matrix `i`. FUSED takes role,
// member and op. In a list of numbers X is called with
//   member               of the argument struct
//   planned              its value in a model, over plan, model, config, layer, op (plan/op_args.c)
//   drawn                its value in a random test case, over `a`, `kernel` and the helpers of kernel/testcase.c
// and OWN is for numbers that a drawer of the op's own draws (kernel/testcase*.c).
#ifndef KERNEL_OP_H
#define KERNEL_OP_H

#include "kernel/operand.h"

// clang-format off

// Embedding lookup: out = table[id - first] * scale; zeros for tokens whose rows other ranks have.
struct embed_args {
    const struct batch *batch;
    struct weight table;
    int first;
    float scale;
    float *out;
};
#define EMBED_OPERANDS(X, EACH, FUSED)                                                              \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(WEIGHT, table, MATRIX, WHOLE, 1, VALUE_BYTES)                                                 \
    X(OUT, out, OUT, PER_ROW, a->table.cols, VALUE_F32)
#define EMBED_NUMBERS(X, OWN)                                                                       \
    OWN(first, op->first)                                                                           \
    OWN(scale, (float)config->embed_scale)

// RMS norm: out = x / rms(x) * weight, over each of `groups` runs of `width` in a row.
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
#define NORM_OPERANDS(X, EACH, FUSED)                                                               \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, x, IN, PER_ROW, a->groups * a->width + a->gap, a->f32_x ? VALUE_F32 : VALUE_BF16)         \
    X(VECTOR, weight, VECTOR, WHOLE, (a->own_weights ? a->groups : 1) * a->width, VALUE_F32)        \
    X(OUT, out, OUT, PER_ROW, a->groups * a->width + a->gap, VALUE_BF16)
#define NORM_NUMBERS(X, OWN)                                                                        \
    X(groups, op->groups, between(1, 4, 1))                                                         \
    X(width, op->width, between(1, 300, WIDE))                                                      \
    X(epsilon, (float)config->norm_epsilon, coin ? 1e-5f : 1e-6f)                                   \
    X(own_weights, op->own_weights, a->groups > 1 && coin)                                          \
    OWN(gap, op->rest)                                                                              \
    OWN(f32_x, is_f32(op->in))

// GEMM: y = W x + bias, for up to three matrices that read the same x. A kernel may fuse its neighbours in the list of
// ops: then their arguments are here, and no other kernel runs them.
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
#define LINEAR_OPERANDS(X, EACH, FUSED)                                                             \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    FUSED(FUSED_BEFORE, norm, NORM)                                                                 \
    X(IN, x, IN, PER_ROW, a->in, VALUE_BF16)                                                        \
    EACH(WEIGHT, output, weight, MATRIX, WHOLE, 1, VALUE_BYTES)                                     \
    EACH(OPTIONAL, output, bias, BIAS, WHOLE, a->output[i].weight.rows, VALUE_F32)                  \
    EACH(OUT, output, y, MATRIX, PER_ROW, a->output[i].weight.rows,                                 \
         a->f32_y ? VALUE_F32 : VALUE_BF16)                                                         \
    FUSED(FUSED_AFTER, act_mul, ACT_MUL)                                                            \
    FUSED(FUSED_AFTER, add, ADD)                                                                    \
    X(SCRATCH, scratch, NONE, WHOLE, 0, VALUE_BYTES)
#define LINEAR_NUMBERS(X, OWN)                                                                      \
    OWN(in, op->width)                                                                              \
    OWN(outputs, op->matrices)                                                                      \
    OWN(f32_y, is_f32(op->matrix[0].out))

// Per-head linear (multi-head latent attention: w_uk, w_uv): y = W x for each head by itself, which has a small matrix
// of its own. The channels of a head beyond `in` are copied behind its result.
struct per_head_linear_args {
    const int *rows;
    const float *x; // (rows, heads, in + rest)
    float *y;       // (rows, heads, out + rest)
    int heads, in, out, rest;
    struct weight weight; // (heads * out, in)
};
#define PER_HEAD_LINEAR_OPERANDS(X, EACH, FUSED)                                                    \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, x, IN, PER_ROW, a->heads * (a->in + a->rest), VALUE_BF16)                                 \
    X(WEIGHT, weight, MATRIX, WHOLE, 1, VALUE_BYTES)                                                \
    X(OUT, y, OUT, PER_ROW, a->heads * (a->out + a->rest), VALUE_BF16)
#define PER_HEAD_LINEAR_NUMBERS(X, OWN)                                                             \
    OWN(heads, op->groups)                                                                          \
    OWN(in, op->width)                                                                              \
    OWN(out, (int)op->matrix[0].tensor->shape[0] / op->groups)                                      \
    OWN(rest, op->rest)

// Rotary position embedding: rotates pairs of channels by position * frequency, in place: q and k. The pairs of the
// result are always halves apart, (i, i + rotated/2), whatever their order in the checkpoint: the cache then holds a
// model's keys in one order, and blocks that share a scale hold the same channels.
struct rope_args {
    const struct batch *batch;
    float *q, *k;
    int heads, kv_heads, head_dim;
    int first, rotated;       // rotary channels: from which on, and how many; the others stay
    bool interleaved;         // pairs come as neighbours, (2i, 2i+1)
    const float *frequencies; // (rotated / 2), radians per position
    float magnitude;          // multiplies the rotated channels, 1 for most models
};
#define ROPE_OPERANDS(X, EACH, FUSED)                                                               \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(INOUT, q, IN, PER_ROW, a->heads * a->head_dim, VALUE_BF16)                                    \
    X(INOUT, k, SECOND, PER_ROW, a->kv_heads * a->head_dim, VALUE_BF16)                             \
    X(VECTOR, frequencies, FREQUENCIES, WHOLE, a->rotated / 2, VALUE_F32)
#define ROPE_NUMBERS(X, OWN)                                                                        \
    X(heads, layer->heads, between(1, 6, 24))                                                       \
    X(kv_heads, layer->kv_heads, between(1, 3, 8))                                                  \
    X(head_dim, layer->head_dim, 2 * between(1, 80, 64))                                            \
    X(rotated, config->rotated, 2 * between(1, a->head_dim / 2, 64))                                \
    X(first, layer->latent, coin && !kernel->rotary_first ? a->head_dim - a->rotated : 0)           \
    X(interleaved, config->rope_interleaved, coin)                                                  \
    X(magnitude, layer->rope_magnitude, coin ? 1.2f : 1)

// Centring and Hadamard rotation of keys before they are stored, and of queries with them, in place: k = H (k -
// centre), q = H q. The centre adds the same to all scores of a query, which softmax does not see; H changes no
// product, for it is orthonormal: the Hadamard matrix in natural order, H[i][j] = (-1)^popcount(i & j) / sqrt(block),
// on each block of a vector.
struct transform_args {
    const int *rows;
    float *q, *k;
    int heads, kv_heads, head_dim;
    const float *centre; // (kv_heads, head_dim) or NULL
    int block;           // a power of two that divides head_dim; 0: nothing is rotated
};
#define TRANSFORM_OPERANDS(X, EACH, FUSED)                                                          \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(INOUT, q, IN, PER_ROW, a->heads * a->head_dim, VALUE_BF16)                                    \
    X(INOUT, k, SECOND, PER_ROW, a->kv_heads * a->head_dim, VALUE_BF16)                             \
    X(OPTIONAL, centre, CENTRE, WHOLE, a->kv_heads * a->head_dim, VALUE_F32)
#define TRANSFORM_NUMBERS(X, OWN)                                                                   \
    OWN(heads, layer->heads)                                                                        \
    OWN(kv_heads, layer->kv_heads)                                                                  \
    OWN(head_dim, layer->head_dim)                                                                  \
    OWN(block, plan->layer[op->layer].transform & KV_ROTATE ? layer->head_dim & -layer->head_dim : 0)

// Stores k and v of the batch's tokens in their pages, in the cache's formats; of latents k alone.
struct kv_write_args {
    const struct batch *batch;
    const float *k, *v;
    struct kv_place cache;
    struct kv_place sink; // of sink pages, a class of its own with its own format
    int sink_pages;       // as many of them; 0: all are in `cache`
    bool scale_search;    // scales of least square error, for formats that leave a choice (kernel/ref/kv_codec.h)
    const struct rope_args *rope;           // before it, where the kernel fuses it
    const struct transform_args *transform; // the same, and after rope
};
#define KV_WRITE_OPERANDS(X, EACH, FUSED)                                                           \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(IN, k, IN, PER_ROW, a->cache.layout.k.heads * a->cache.layout.k.dim, VALUE_BF16)              \
    X(IN, v, SECOND, PER_ROW,                                                                       \
      a->cache.layout.latent ? 0 : a->cache.layout.v.heads * a->cache.layout.v.dim, VALUE_BF16)     \
    X(CACHE_OUT, cache, NONE, WHOLE, 0, VALUE_BYTES)                                                \
    X(CACHE_OUT, sink, NONE, WHOLE, 0, VALUE_BYTES)                                                 \
    FUSED(FUSED_BEFORE, rope, ROPE)                                                                 \
    FUSED(FUSED_BEFORE, transform, TRANSFORM)
#define KV_WRITE_NUMBERS(X, OWN)                                                                    \
    OWN(cache.layout, plan->classes[plan->layer[op->layer].class_index].layout)                     \
    OWN(scale_search, plan->scale_search)

// Attention with a paged KV cache: out = softmax(cap(q K * scale)) V over the cached tokens, the token's own K and V
// included. A sink is a score that takes part in the softmax and has no value.
struct attention_args {
    const struct batch *batch;
    const float *q;
    float *out;
    int heads;
    int group, lead; // GQA: query heads per KV head. The first group may have `lead` fewer, and the last one fewer,
                     // too: those query heads are on other ranks (model/shard.h)
    float scale;
    int window;         // tokens a token sees, itself included; 0: all
    float softcap;      // 0: none
    const float *sinks; // (heads), NULL: none
    struct kv_place cache;
    struct kv_place sink; // of sink pages, a class of its own with its own format
    int sink_pages;       // as many of them; 0: all are in `cache`
    void *scratch;        // as much as the kernel asks for; shared by all ops of a step
};
#define ATTENTION_OPERANDS(X, EACH, FUSED)                                                          \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(IN, q, IN, PER_ROW, a->heads * a->cache.layout.k.dim, VALUE_BF16)                             \
    X(OUT, out, OUT, PER_ROW, a->heads * a->cache.layout.v.dim, VALUE_BF16)                         \
    X(OPTIONAL, sinks, VECTOR, WHOLE, a->heads, VALUE_F32)                                          \
    X(CACHE, cache, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(CACHE, sink, NONE, WHOLE, 0, VALUE_BYTES)                                                     \
    X(SCRATCH, scratch, NONE, WHOLE, 0, VALUE_BYTES)
#define ATTENTION_NUMBERS(X, OWN)                                                                   \
    OWN(cache.layout, plan->classes[plan->layer[op->layer].class_index].layout)                     \
    OWN(heads, layer->heads)                                                                        \
    OWN(group, layer->group)                                                                        \
    OWN(lead, layer->lead)                                                                          \
    OWN(scale, (float)config->attention_scale)                                                      \
    OWN(window, layer->window)                                                                      \
    OWN(softcap, (float)config->attention_softcap)

// Query heads of this rank that share a KV head.
static inline void attention_heads(const struct attention_args *args, int kv_head, int *first, int *end)
{
    int begin = kv_head * args->group - args->lead;
    *first = begin > 0 ? begin : 0;
    *end = begin + args->group < args->heads ? begin + args->group : args->heads;
}

enum activation { ACT_SILU, ACT_GELU_TANH, ACT_CLAMPED, ACT_SIGMOID, ACT_RELU };

// Gated activation: out = act(gate) * up. ACT_CLAMPED bounds both: with g = min(gate, 7) and u = up within -7 and 7 it
// is g * sigmoid(1.702 g) * (u + 1). Where gate and up are the same, ACT_RELU gives squares: relu(x) * x.
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
#define ACT_MUL_OPERANDS(X, EACH, FUSED)                                                            \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, gate, IN, PER_ROW, a->gate_per_row ? 1 : a->width, VALUE_BF16)                            \
    X(IN, up, SECOND, PER_ROW, a->width, VALUE_BF16)                                                \
    X(OUT, out, OUT, PER_ROW, a->width, VALUE_BF16)
#define ACT_MUL_NUMBERS(X, OWN)                                                                     \
    X(width, op->width, between(1, 300, WIDE))                                                      \
    X(act, op->activation, (enum activation)between(ACT_SILU, ACT_RELU, ACT_SILU))                  \
    X(gate_per_row, op->gate_per_row, a->act == ACT_SIGMOID && coin)

// x += y
struct add_args {
    const int *rows;
    float *x;
    const float *y;
    int width;
};
#define ADD_OPERANDS(X, EACH, FUSED)                                                                \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(INOUT, x, OUT, PER_ROW, a->width, VALUE_F32)                                                  \
    X(IN, y, IN, PER_ROW, a->width, VALUE_BF16)
#define ADD_NUMBERS(X, OWN) X(width, op->width, between(1, 300, WIDE))

// Gather of the rows whose logits are wanted.
struct pick_args {
    const struct batch *batch;
    const float *x;
    float *out;
    int width;
};
#define PICK_OPERANDS(X, EACH, FUSED)                                                               \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(IN, x, IN, PER_TOKEN, a->width, VALUE_F32)                                                    \
    X(OUT, out, OUT, PER_OUTPUT, a->width, VALUE_F32)
#define PICK_NUMBERS(X, OWN) X(width, op->width, between(1, 300, WIDE))

// Soft cap of logits: x = cap * tanh(x / cap)
struct softcap_args {
    const int *rows;
    float *x;
    int width;
    float cap;
};
#define SOFTCAP_OPERANDS(X, EACH, FUSED)                                                            \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(INOUT, x, IN, PER_ROW, a->width, VALUE_F32)
#define SOFTCAP_NUMBERS(X, OWN)                                                                     \
    X(width, op->width, between(1, 300, WIDE))                                                      \
    X(cap, (float)config->final_softcap, coin ? 30 : 2)

// out = x: the residual stream where a linear is to read it as it is; on a GPU it becomes bfloat16.
struct copy_args {
    const int *rows;
    const float *x;
    float *out;
    int width;
};
#define COPY_OPERANDS(X, EACH, FUSED)                                                               \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, x, IN, PER_ROW, a->width, VALUE_F32)                                                      \
    X(OUT, out, OUT, PER_ROW, a->width, VALUE_BF16)
#define COPY_NUMBERS(X, OWN) X(width, op->width, between(1, 300, WIDE))

// Tensor parallelism (model/shard.h): the ranks' partial results lie one after the other, `stride` values apart. All
// reduce: out = their sum, in the order of ranks whatever the order of arrival; or out += the sum.
struct all_reduce_args {
    const int *rows;
    const float *parts; // (ranks, stride): of each (rows, width)
    size_t stride;
    int ranks, width;
    float *out;   // (rows, width)
    bool adds;    // to what is there: the residual stream
    bool f32_out; // on a GPU: out is f32 (the residual stream), else bfloat16
};
#define ALL_REDUCE_OPERANDS(X, EACH, FUSED)                                                         \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, parts, IN, WHOLE, a->stride * (size_t)a->ranks, VALUE_F32)                                \
    X(SUM, out, OUT, PER_ROW, a->width, a->f32_out ? VALUE_F32 : VALUE_BF16)
#define ALL_REDUCE_NUMBERS(X, OWN)                                                                  \
    X(ranks, model->shard.ranks, between(2, 5, 2))                                                  \
    X(width, op->width, between(1, 300, WIDE))                                                      \
    X(stride, rank_stride(op->in), (size_t)(*a->rows + 1) * (size_t)a->width)                       \
    X(adds, op->adds, coin)                                                                         \
    X(f32_out, is_f32(op->out), a->adds || coin)

// All gather: out = the columns of all ranks, side by side: each has its part (kernel_range) of the units of columns.
enum { ALL_GATHER_UNIT = 16 };
struct all_gather_args {
    const int *rows;
    const float *parts; // (ranks, stride): of each (rows, its columns)
    size_t stride;
    int ranks, width;
    float *out; // (rows, width)
};
#define ALL_GATHER_OPERANDS(X, EACH, FUSED)                                                         \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, parts, IN, WHOLE, a->stride * (size_t)a->ranks, VALUE_F32)                                \
    X(OUT, out, OUT, PER_ROW, a->width, VALUE_F32)
#define ALL_GATHER_NUMBERS(X, OWN)                                                                  \
    X(ranks, model->shard.ranks, between(2, 5, 2))                                                  \
    X(width, op->width, between(1, 300, WIDE) + a->ranks * ALL_GATHER_UNIT)                               \
    X(stride, rank_stride(op->in), (size_t)(*a->rows + 1) * columns_max(a->width, a->ranks))

// The four arrays of struct routes.
#define ROUTES_OPERANDS(X, written, order)                                                          \
    X(written, routes.expert, EXPERT, PER_ROW, a->routes.top_k, VALUE_INT)                         \
    X(written, routes.weight, EXPERT_WEIGHT, PER_ROW, a->routes.top_k, VALUE_F32)                           \
    X(order, routes.pair, PAIR, PER_ROW, a->routes.top_k, VALUE_INT)                               \
    X(order, routes.first, FIRST, WHOLE, a->routes.experts + 1, VALUE_INT)
#define ROUTES_NUMBERS(OWN)                                                                         \
    OWN(routes.experts, config->experts.count)                                                      \
    OWN(routes.top_k, config->experts.top_k)

enum route_score { ROUTE_SOFTMAX, ROUTE_SIGMOID };

// Top-k routing. Scores of a token's experts are the softmax or sigmoid of the router's logits. The highest scores are
// selected (of equals the first), and are the experts' weights; a bias is added for selection only (DeepSeek-V3,
// e_score_correction_bias). With groups, only the topk_group groups whose group_best highest scores add up to most
// are looked at.
struct route_args {
    const int *rows;
    const float *logits; // (rows, experts); f32 on a GPU, too
    const float *bias;   // (experts) or NULL
    enum route_score score;
    int groups, topk_group, group_best; // 1 group: all experts are looked at
    bool normalise;                        // weights are divided by their sum
    float scale;                           // of weights, after that
    struct routes routes;
};
#define ROUTE_OPERANDS(X, EACH, FUSED)                                                              \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, logits, IN, PER_ROW, a->routes.experts, VALUE_F32)                                        \
    X(OPTIONAL, bias, VECTOR, WHOLE, a->routes.experts, VALUE_F32)                                  \
    ROUTES_OPERANDS(X, OUT, INDEX)
#define ROUTE_NUMBERS(X, OWN)                                                                       \
    OWN(score, config->experts.score)                                                               \
    OWN(groups, config->experts.groups)                                                             \
    OWN(topk_group, config->experts.topk_group)                                               \
    OWN(group_best, config->experts.group_best)                                                     \
    OWN(normalise, config->experts.normalise)                                                       \
    OWN(scale, (float)config->experts.scale)                                                        \
    ROUTES_NUMBERS(OWN)

// Grouped GEMM: y = W[expert] x + bias[expert] for every pair, for up to two matrices of each expert that read the
// same x.
struct experts_args {
    const int *rows; // tokens
    const float *x;  // (rows, in), or, with x_per_slot, (rows, top_k, in)
    bool x_per_slot;
    int in;
    struct routes routes;
    void *scratch; // as much as the kernel asks for; shared by all ops of a step
    int outputs;
    struct experts_output {
        struct weight weight; // one expert's shape; those of all lie one after the other, packed each by itself
        const float *scales;  // (experts): each expert's own besides weight.scale; NULL: none
        const float *bias;    // (experts, weight.rows) or NULL
        float *y;             // (rows, top_k, weight.rows)
    } output[EXPERTS_OUTPUTS_MAX];
};
#define EXPERTS_OPERANDS(X, EACH, FUSED)                                                            \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, x, IN, PER_ROW, a->in * (a->x_per_slot ? a->routes.top_k : 1), VALUE_BF16)               \
    ROUTES_OPERANDS(X, IN, IN)                                                                      \
    EACH(WEIGHT, output, weight, MATRIX, WHOLE, a->routes.experts, VALUE_BYTES)                     \
    EACH(OPTIONAL, output, scales, SCALES, WHOLE, a->routes.experts, VALUE_F32)                     \
    EACH(OPTIONAL, output, bias, BIAS, WHOLE, a->routes.experts * a->output[i].weight.rows, VALUE_F32) \
    EACH(OUT, output, y, MATRIX, PER_ROW, a->routes.top_k * a->output[i].weight.rows, VALUE_BF16)  \
    X(SCRATCH, scratch, NONE, WHOLE, 0, VALUE_BYTES)
#define EXPERTS_NUMBERS(X, OWN)                                                                     \
    OWN(in, op->width)                                                                              \
    OWN(x_per_slot, op->per_slot)                                                                   \
    OWN(outputs, op->matrices)                                                                      \
    ROUTES_NUMBERS(OWN)

// out = the sum over slots of the expert's weight * x
struct combine_args {
    const int *rows;
    const float *x; // (rows, top_k, width)
    float *out;     // (rows, width)
    int width;
    bool f32_out; // on a GPU: out is f32 (a partial sum of several ranks'), else bfloat16
    struct routes routes;
};
#define COMBINE_OPERANDS(X, EACH, FUSED)                                                            \
    X(ROWS, rows, NONE, WHOLE, 0, VALUE_BYTES)                                                      \
    X(IN, x, IN, PER_ROW, a->routes.top_k * a->width, VALUE_BF16)                                  \
    X(OUT, out, OUT, PER_ROW, a->width, a->f32_out ? VALUE_F32 : VALUE_BF16)                        \
    ROUTES_OPERANDS(X, IN, IN)
#define COMBINE_NUMBERS(X, OWN)                                                                     \
    OWN(width, op->width)                                                                           \
    OWN(f32_out, is_f32(op->out))                                                                   \
    ROUTES_NUMBERS(OWN)

// Short causal convolution over each channel's last inputs, those of earlier tokens from the state, and SiLU of the
// result: out = silu(bias + sum of kernel[i] * x[token - inputs + i]), in this order. The last inputs become the state.
struct conv_args {
    const struct batch *batch;
    const float *x;      // (rows, channels), as the state's layout has them
    float *out;          // (rows, channels), not x
    const float *kernel; // (inputs + 1, channels): one more than the state's inputs, the newest last
    const float *bias;   // (channels) or NULL
    struct state_place state;
};
#define CONV_OPERANDS(X, EACH, FUSED)                                                               \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(IN, x, IN, PER_ROW, a->state.layout.channels, VALUE_BF16)                                     \
    X(OUT, out, OUT, PER_ROW, a->state.layout.channels, VALUE_BF16)                                 \
    X(VECTOR, kernel, CONV_KERNEL, WHOLE, (a->state.layout.inputs + 1) * a->state.layout.channels, VALUE_F32) \
    X(OPTIONAL, bias, MORE_0, WHOLE, a->state.layout.channels, VALUE_F32)                           \
    X(STATE, state, NONE, WHOLE, 0, VALUE_BYTES)
#define CONV_NUMBERS(X, OWN) OWN(state.layout, layer->state)

// State space model (Mamba 2): token by token the matrix S of each head, (keys, values), becomes
//   S = exp(a dt) S + b (dt x)^T, and out = c S + d x, summed over keys in order,
// with dt = softplus(dt + dt_bias) within its bounds. Heads share b and c in groups, in order.
struct ssm_scan_args {
    const struct batch *batch;
    const float *mixed; // (rows, heads * values + 2 * groups * keys): x, then b and c of each group
    const float *dt;    // (rows, heads)
    float *out;         // (rows, heads * values)
    int groups;
    const float *a, *d, *dt_bias; // (heads)
    float dt_min, dt_max;
    struct state_place state; // its layout has heads, keys and values
};
#define SSM_SCAN_OPERANDS(X, EACH, FUSED)                                                           \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(IN, mixed, IN, PER_ROW,                                                                       \
      a->state.layout.heads * a->state.layout.values + 2 * a->groups * a->state.layout.keys, VALUE_BF16) \
    X(IN, dt, SECOND, PER_ROW, a->state.layout.heads, VALUE_BF16)                                 \
    X(OUT, out, OUT, PER_ROW, a->state.layout.heads * a->state.layout.values, VALUE_BF16)           \
    X(VECTOR, a, DECAY, WHOLE, a->state.layout.heads, VALUE_F32)                                    \
    X(VECTOR, d, MORE_1, WHOLE, a->state.layout.heads, VALUE_F32)                                   \
    X(VECTOR, dt_bias, MORE_0, WHOLE, a->state.layout.heads, VALUE_F32)                             \
    X(STATE, state, NONE, WHOLE, 0, VALUE_BYTES)
#define SSM_SCAN_NUMBERS(X, OWN)                                                                    \
    OWN(state.layout, layer->state)                                                                 \
    OWN(groups, config->recurrent.groups)                                                           \
    OWN(dt_min, (float)config->recurrent.dt_min)                                                    \
    OWN(dt_max, (float)config->recurrent.dt_max)


// Gated delta rule, recurrent form: token by token the matrix S of each head, (keys, values), becomes decay S, and then
// is changed so that it recalls v for k, or a part of the way: S += k (beta (v - k S))^T. out = q S. Sums run over keys
// in order. q and k are normalised to length 1 (L2), q besides divided by sqrt(keys); decay = exp(a softplus(dt +
// dt_bias)), and beta is the sigmoid of the operand. Heads share q and k in groups.
#define GATED_DELTA_EPSILON 1e-6f // added to squares of lengths
struct gated_delta_args {
    const struct batch *batch;
    const float *mixed;       // (rows, 2 * groups * keys + heads * values): q of each group, k of each, v of each head
    const float *dt, *beta;   // (rows, heads)
    float *out;               // (rows, heads * values)
    int groups;
    bool interleaved;            // head h is of group h % groups; else those of a group stand together
    const float *a, *dt_bias; // (heads)
    struct state_place state; // its layout has heads, keys and values
};
#define GATED_DELTA_OPERANDS(X, EACH, FUSED)                                                        \
    X(BATCH, batch, NONE, WHOLE, 0, VALUE_BYTES)                                                    \
    X(IN, mixed, IN, PER_ROW,                                                                       \
      a->state.layout.heads * a->state.layout.values + 2 * a->groups * a->state.layout.keys, VALUE_BF16) \
    X(IN, dt, SECOND, PER_ROW, a->state.layout.heads, VALUE_BF16)                                 \
    X(IN, beta, THIRD, PER_ROW, a->state.layout.heads, VALUE_BF16)                                  \
    X(OUT, out, OUT, PER_ROW, a->state.layout.heads * a->state.layout.values, VALUE_BF16)           \
    X(VECTOR, a, DECAY, WHOLE, a->state.layout.heads, VALUE_F32)                                    \
    X(VECTOR, dt_bias, MORE_0, WHOLE, a->state.layout.heads, VALUE_F32)                             \
    X(STATE, state, NONE, WHOLE, 0, VALUE_BYTES)
#define GATED_DELTA_NUMBERS(X, OWN)                                                                 \
    OWN(state.layout, layer->state)                                                                 \
    OWN(groups, config->recurrent.groups)                                                           \
    OWN(interleaved, config->recurrent.interleaved)

// ---- the table ----

// How ranks divide an op's work (model/shard.c).
enum op_division {
    DIVIDED_NOT,        // every rank does all of it, or by the layer's own numbers its heads
    DIVIDED_VOCABULARY, // each rank has rows of the table; the results are summed
    DIVIDED_GROUPS,     // as many groups as the rank has of the input
    DIVIDED_MATRICES,   // rows; or columns, where the rank has a part of the input's, and the results are summed
    DIVIDED_EXPERTS,    // the same within every expert; they are summed after combine
    DIVIDED_HEADS,      // the matrices of the rank's heads
    DIVIDED_ATTENTION,  // the rank's heads
    DIVIDED_WIDTH,      // columns
    DIVIDED_TERMS,      // the results are summed
};

// X(id, word, formats, cpu, gpu, division, flops, about)
//   formats    of the reference: NONE, WEIGHTS or CACHE (kernel/ref/table.c)
//   cpu, gpu   tolerance against the reference: the largest difference as a part of the largest value. Sums may run in
//              another order and exponentials be computed in another way; what moves or stores numbers is exact. On a
//              GPU results are bfloat16, and so is what tensor cores multiply; the residual stream and logits are f32.
//   division   enum op_division without its prefix
//   flops      per row, besides products with weights and attention; C over `a`
#define OPS(X)                                                                                                       \
    X(EMBED, embed, WEIGHTS, 1e-6f, 1e-6f, VOCABULARY, 0, "embedding lookup")                                        \
    X(NORM, norm, NONE, 1e-5f, 0.005f, GROUPS, 0, "RMS norm, over each group of a row")                              \
    X(LINEAR, linear, WEIGHTS, 1e-5f, 0.01f, MATRICES, 0, "GEMM: up to three matrices that read the same input")     \
    X(PER_HEAD_LINEAR, per_head_linear, WEIGHTS, 1e-5f, 0.01f, HEADS, 0, "a small matrix for each head")             \
    X(ROPE, rope, NONE, 1e-5f, 0.005f, NOT, 0, "rotary position embedding of q and k")                               \
    X(TRANSFORM, transform, NONE, 0, 0.005f, NOT, 0, "centring and Hadamard rotation of k, and of q with it")        \
    X(KV_WRITE, kv_write, CACHE, 0, 0.01f, NOT, 0, "stores k and v in the KV cache's formats")                       \
    X(ATTENTION, attention, CACHE, 2e-5f, 0.01f, ATTENTION, 0, "attention over the paged KV cache")                  \
    X(ACT_MUL, act_mul, NONE, 1e-5f, 0.005f, WIDTH, 0, "gated activation")                                           \
    X(ADD, add, NONE, 0, 1e-6f, NOT, 0, "adds to the residual stream")                                               \
    X(PICK, pick, NONE, 0, 0, NOT, 0, "gathers the rows whose logits are wanted")                                    \
    X(SOFTCAP, softcap, NONE, 1e-5f, 1e-3f, NOT, 0, "soft cap of logits")                                            \
    X(COPY, copy, NONE, 0, 0.005f, NOT, 0, "copies the residual stream")                                             \
    X(ROUTE, route, NONE, 1e-5f, 1e-5f, NOT, 0, "top-k routing of tokens to experts")                                \
    X(EXPERTS, experts, WEIGHTS, 1e-5f, 0.01f, EXPERTS, 0, "grouped GEMM over each token's experts")                 \
    X(COMBINE, combine, NONE, 1e-5f, 0.005f, TERMS, 0, "weighted sum of the experts' results")                       \
    X(CONV, conv, NONE, 1e-5f, 0.005f, NOT, 0, "short causal convolution and SiLU")                                  \
    X(SSM_SCAN, ssm_scan, NONE, 0, 0.005f, NOT,                                                         \
      5.0 * a->state.layout.heads * a->state.layout.keys * a->state.layout.values, "state space scan (Mamba 2)")    \
    X(GATED_DELTA, gated_delta, NONE, 1e-5f, 0.005f, NOT,                                               \
      5.0 * a->state.layout.heads * a->state.layout.keys * a->state.layout.values, "gated delta rule")              \
    X(ALL_REDUCE, all_reduce, NONE, 0, 0.005f, NOT, 0, "sum of the ranks' partial results")                          \
    X(ALL_GATHER, all_gather, NONE, 0, 0, NOT, 0, "columns of all ranks, side by side")
// clang-format on

enum op_kind {
#define X(id, ...) OP_##id,
    OPS(X)
#undef X
        OP_COUNT
};

union op_args {
#define X(id, word, ...) struct word##_args word;
    OPS(X)
#undef X
};

struct op_info {
    const char *word, *about;
    float tolerance, gpu_tolerance;
    enum op_division division;
    const char *flops;                         // as the table has it
    const struct operand *(*list)(int *count); // its operands
};

extern const struct op_info op_table[OP_COUNT];

const char *op_word(enum op_kind kind);

// All operands of an op with these arguments, with those of the first matrix, then the second one's and so on. An
// address may be NULL. A fused neighbour is one operand: its arguments. Returns how many there are.
int op_operands(enum op_kind kind, void *args, struct operand_use out[OP_OPERANDS_MAX]);

double op_flops(enum op_kind kind, const void *args); // of a row, besides products with weights and attention

// Where the arguments have an operand's address: in its member, or in the weight or the place that the member is.
void **operand_pointer(const struct operand_use *use);

#endif
