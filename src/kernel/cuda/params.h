// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/params.h: the parameters of CUDA kernels: one struct each, by value, the same in C and in CUDA C.
// Addresses are the device's. Activations are bfloat16, row by row; the residual stream and the logits are f32.
// Counts that change from step to step are read from device memory, so that a captured step can be replayed: a grid is
// made for at least as much as is there, and what is beyond it does nothing.
#ifndef KERNEL_CUDA_PARAMS_H
#define KERNEL_CUDA_PARAMS_H

#include <stdint.h>

// One copy writes these counts of a step before it.
enum cuda_count { CUDA_TOKENS, CUDA_SEQUENCES, CUDA_OUTPUTS, CUDA_COUNTS };

struct cuda_batch {
    const int32_t *counts;      // (CUDA_COUNTS)
    const int32_t *ids;         // (tokens); ~i stands for drawn[i]
    const int32_t *positions;   // (tokens)
    const int32_t *sequence_of; // (tokens)
    const int32_t *first;       // (sequences): its first row
    const int32_t *count;       // (sequences): its rows; the last one's position is the last the sequence has
    const int32_t *output_rows; // (outputs)
    const int32_t *tables;      // page numbers, one run per class and sequence
    const int32_t *table_at; // (classes, sequences_max): where each run begins in `tables`; -1 entries are never read
    const int32_t *drawn;    // tokens of the step before, one for each of its outputs
    int32_t sequences_max;
};

// A layer's place in the cache (kv/layout.h): a vector of side s, head h and token t of a page begins at
//   pool + page * page_bytes + s.data + (h * 16 + t) * s.data_bytes, its scales likewise at s.scales.
struct cuda_side {
    uint32_t data, data_bytes; // offsets from the page's first byte, the layer's included
    uint32_t scales, scale_bytes;
    int32_t dtype; // enum dtype, for kernels that serve several
    float scale;   // of the layer, for formats that have one
};

struct cuda_place {
    uint8_t *pool;
    uint64_t page_bytes;
    struct cuda_side k, v;
    int32_t class_index, heads, k_dim, v_dim;
};

// A recurrent layer's place among the states; `pool` includes the offsets of the layer and of the part that is meant.
struct cuda_state {
    uint8_t *pool;
    uint64_t page_bytes;
    int32_t class_index, page_tokens;
};

struct cuda_embed {
    struct cuda_batch batch;
    const uint8_t *table; // as the file has it
    uint64_t row_bytes;
    float *out;           // f32: the residual stream
    int32_t width, dtype; // enum dtype of the table
    int32_t first, rows;  // the tokens it has; others give zeros
    float scale;          // of the op times the matrix's own
};

struct cuda_norm {
    const int32_t *rows; // device counts
    const void *x;       // f32 or bfloat16, as the function's name says
    uint16_t *out;       // bfloat16; may be x if that is bfloat16, too
    const float *weight;
    int32_t own_weights;        // each of a row's groups has its own
    int32_t groups, width, gap; // gap: between a row's end and the next one
    int32_t group_threads;      // threads of one group: a power of two within a warp, or the whole block
    float epsilon;
};

struct cuda_rope {
    uint16_t *q, *k; // bfloat16, rotated in place
    const float *frequencies;
    int32_t heads, kv_heads, head_dim, first, rotated, interleaved;
    float magnitude;
};

struct cuda_per_head_linear {
    const int32_t *rows;
    const uint16_t *x;     // (rows, heads, in + rest)
    uint16_t *y;           // (rows, heads, out + rest)
    const uint8_t *weight; // (heads, out, in), as the file has it
    int32_t heads, in, out, rest, dtype;
    float scale;
};

struct cuda_rope_rows {
    struct cuda_batch batch;
    struct cuda_rope rope;
};

struct cuda_transform {
    uint16_t *q, *k;     // bfloat16, changed in place
    const float *centre; // (kv_heads, head_dim) or NULL
    int32_t heads, kv_heads, head_dim, block;
    float factor; // of what is rotated: 1 / sqrt(block)
};

struct cuda_transform_rows {
    const int32_t *rows;
    struct cuda_transform transform;
};

// Rotates q and k (RoPE) if rope.q is not NULL, transforms them if transform.q is not NULL, then stores k and v.
struct cuda_kv_write {
    struct cuda_batch batch;
    struct cuda_place cache, sink; // sink: of the sink pages, sink_pages of them
    int32_t sink_pages, scale_search;
    struct cuda_rope rope;
    struct cuda_transform transform;
    const uint16_t *k, *v;
};

// For the sequences whose number of rows in this step is within [rows_min, rows_max].
struct cuda_attention {
    struct cuda_batch batch;
    struct cuda_place cache, sink; // sink: of the sink pages, sink_pages of them
    int32_t sink_pages;
    const uint16_t *q;
    uint16_t *out;
    const float *sinks;      // (heads) or NULL
    float *partials;         // scratch of the op
    int32_t partials_each;   // of latents: how many there is room for, per sequence and head
    int32_t sequences;       // that decode is launched for
    int32_t ctas, log_warps; // of its launch, and log2 of a CTA's warps: what work tiles are cut for
    int32_t ctas_per_sm;
    int32_t log_splits;   // log2 of the KV splits that suit the kernel
    int32_t log_each_max; // log2 of the most splits that a warp of it can do one after the other
    int32_t heads, window, rows_min, rows_max;
    int32_t group, lead; // heads that share one of the cache; the first has so many fewer, the last may
    float scale, softcap;
};

struct cuda_conv {
    struct cuda_batch batch;
    struct cuda_state state; // (inputs, channels)
    const uint16_t *x;       // (rows, channels)
    uint16_t *out;
    const float *kernel, *bias; // (inputs + 1, channels), (channels) or NULL
    int32_t inputs, channels;
    int32_t tiles; // runs of tokens that the grid has for each sequence
};

struct cuda_ssm_scan {
    struct cuda_batch batch;
    struct cuda_state state;      // (heads, keys, values)
    const uint16_t *mixed;        // (rows, heads * values + 2 * groups * keys)
    const uint16_t *dt;           // (rows, heads)
    const float *a, *d, *dt_bias; // (heads)
    uint16_t *out;                // (rows, heads * values)
    int32_t groups, heads, keys, values;
    float dt_min, dt_max;
};

struct cuda_gated_delta {
    struct cuda_batch batch;
    struct cuda_state state;   // (heads, keys, values)
    const uint16_t *mixed;     // (rows, 2 * groups * keys + heads * values)
    const uint16_t *dt, *beta; // (rows, heads)
    const float *a, *dt_bias;  // (heads)
    uint16_t *out;             // (rows, heads * values)
    int32_t groups, interleaved, heads, keys, values;
};

struct cuda_act_mul {
    const int32_t *rows;
    const uint16_t *gate, *up;
    uint16_t *out;
    int32_t width, act; // enum activation
    int32_t gate_per_row;
};

struct cuda_add {
    const int32_t *rows;
    float *x; // the residual stream
    const uint16_t *y;
    int32_t width;
};

struct cuda_pick {
    struct cuda_batch batch;
    const float *x;
    float *out;
    int32_t width;
};

struct cuda_copy {
    const int32_t *rows;
    const float *x; // the residual stream
    uint16_t *out;
    int32_t width;
};

struct cuda_all_reduce {
    const int32_t *rows;
    const float *parts;
    void *out; // f32 or bfloat16
    uint64_t stride;
    int32_t ranks, width, adds, f32_out; // adds: to what is there, in f32
};

struct cuda_all_gather {
    const int32_t *rows;
    const float *parts;
    float *out;
    uint64_t stride;
    int32_t ranks, width, unit;
};

struct cuda_softcap {
    const int32_t *rows;
    float *x; // logits
    int32_t width;
    float cap;
};

// How a row of logits becomes a token: the rule of engine/sampling/sampler.h, without penalties, bias and masks.
struct cuda_sampling_row {
    uint64_t seed;
    double temperature, top_p, min_p;
    int32_t top_k, choice;
    int32_t count;   // of the text's tokens so far: with seed and choice the key of the draw
    int32_t on_host; // nothing is drawn here: the host wants the logits
};

enum {
    CUDA_SAMPLING_CHUNK = 256,
    CUDA_SAMPLING_BINS = 128,
    CUDA_SAMPLING_VOCABULARY_MAX = 1 << 19,
    CUDA_SAMPLING_NOT_FINITE = -1,
};

struct cuda_sampling {
    const int32_t *outputs; // device count
    const struct cuda_sampling_row *rows;
    const float *logits;  // (outputs, vocabulary)
    float *peaks;         // scratch: (outputs, chunks), the largest logit of each chunk of the vocabulary
    uint64_t *masses;     // scratch: (outputs, chunks), the sum of its probabilities
    uint64_t *bin_masses; // scratch: (outputs, CUDA_SAMPLING_BINS), the same by how likely tokens are
    int32_t *bin_counts;  // scratch: how many those are
    int32_t *tokens;      // (outputs): what was drawn, or CUDA_SAMPLING_NOT_FINITE
    int32_t vocabulary, chunks;
};

// y = W x + bias for up to three matrices. Neighbouring ops of the model may be fused:
//   norm_weight: x is f32 and is normed first (over the whole row, cuda_norm's rule)
//   act >= 0:    there are two matrices, gate and up; y[0] = act(gate) * up, rounded to bfloat16
//   residual:    y[0] is f32 and is added to
// y is f32 for logits (f32_out) and for residual, else bfloat16.
struct cuda_linear {
    const int32_t *rows;
    const void *x;
    const float *norm_weight;
    float epsilon;
    int32_t in, outputs, act, residual, f32_out;
    void *scratch;
    struct cuda_linear_output {
        const uint8_t *weight; // in the row's packing
        const float *bias;
        void *y;
        int32_t rows;
        float scale; // of the whole matrix
    } output[3];
};

#endif
