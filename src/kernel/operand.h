// SPDX-License-Identifier: Apache-2.0
// kernel/operand.h: what ops work on: the batch, weights, places in the cache; and how the table of ops (kernel/op.h)
// describes an operand, so that binding, data flow, tests, costs and documentation follow from one description.
#ifndef KERNEL_OPERAND_H
#define KERNEL_OPERAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/layout.h"

enum { KV_CLASSES_MAX = 16, LINEAR_OUTPUTS_MAX = 3, HEAD_DIM_MAX = 512, LINEAR_IN_MAX = 1 << 16 };
enum { LATENT_DIM_MAX = HEAD_DIM_MAX + 64 }; // of a latent, its rotary channels included: a key
enum { GATED_DELTA_KEYS_MAX = 256, SSM_SCAN_KEYS_MAX = 256, CONV_KERNEL_MAX = 16 };
enum { EXPERTS_MAX = 512, EXPERTS_TOP_K_MAX = 32, EXPERTS_GROUPS_MAX = 32, EXPERTS_OUTPUTS_MAX = 2 };

struct cuda_batch;

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

// Mixture of experts: each token's top-k experts and their weights. A slot is one of a token's top_k choices; token *
// top_k + slot is the number of a (token, slot) pair. Pairs are listed by expert, so that an expert's weights are read
// once for all of them, and an expert without pairs is not read at all.
struct routes {
    int experts, top_k;
    int32_t *expert; // (rows, top_k), those of a token all different, the highest score first
    float *weight;   // (rows, top_k)
    int32_t *first;  // (experts + 1): where the pairs of each expert begin in `pair`
    int32_t *pair;   // (rows * top_k): every pair, by expert; the order within one expert is free
};

// ---- operands ----

enum operand_role {
    ROLE_ROWS,         // const int *: the number of rows
    ROLE_BATCH,        // const struct batch *
    ROLE_IN,           // activations: read
    ROLE_OUT,          // written
    ROLE_INOUT,        // read and written in place
    ROLE_SUM,          // written, or added to where struct op says so
    ROLE_INDEX,        // written: an order of which more than one is right
    ROLE_WEIGHT,       // struct weight: a matrix of the checkpoint
    ROLE_VECTOR,       // values of the checkpoint
    ROLE_OPTIONAL,     // the same, or NULL
    ROLE_CACHE,        // pages of the KV cache, read
    ROLE_CACHE_OUT,    // and written
    ROLE_STATE,        // recurrent states, read and written
    ROLE_SCRATCH,      // memory of no meaning, as much as the kernel asks for
    ROLE_FUSED_BEFORE, // arguments of a neighbour that the kernel does as well, before its own op or after it; or NULL
    ROLE_FUSED_AFTER,
};

// Which member of struct op (model/model.h) names the buffer or the tensor that an operand is bound to.
enum op_slot {
    SLOT_NONE,
    SLOT_IN,
    SLOT_SECOND,
    SLOT_THIRD,
    SLOT_OUT,
    SLOT_EXPERT, // of the routes, as are the next three
    SLOT_EXPERT_WEIGHT,
    SLOT_PAIR,
    SLOT_FIRST,
    SLOT_MATRIX, // matrix[i]: its output, its tensor, its bias, the scales of its experts
    SLOT_BIAS,
    SLOT_SCALES,
    SLOT_VECTOR,
    SLOT_MORE_0,
    SLOT_MORE_1,
    SLOT_DECAY,       // `vector`, which may be stored as log(-a)
    SLOT_CONV_KERNEL, // `vector`, transposed
    SLOT_FREQUENCIES, // of the layer's rope
    SLOT_CENTRE,      // of the layer's keys, as calibrated
};

// The first dimension of an operand.
enum operand_rows { PER_ROW, PER_TOKEN, PER_OUTPUT, WHOLE };

// Elements. VALUE_BF16 is f32 on CPUs.
enum operand_type { VALUE_F32, VALUE_BF16, VALUE_INT, VALUE_BYTES };

struct operand {
    const char *name; // of the member
    enum operand_role role;
    enum op_slot slot;
    enum operand_rows rows;
    const char *shape, *type; // as the table has them, for doc/ops.md
    size_t at;                // of the member in the argument struct
    size_t each;              // bytes from one matrix's member to the next one's; 0: there is one for all matrices
    int fused;                // enum op_kind of a fused neighbour
};

// Describes an operand of some arguments: its member, and its size from the numbers in the arguments.
enum { OP_OPERANDS_MAX = 24 };
struct operand_use {
    const struct operand *operand;
    int matrix;   // which one; 0 for operands that there are one of
    void *member; // in the arguments
    size_t width; // elements of a row, or in all; for weights how many matrices
    enum operand_type type;
};

static inline bool role_reads(enum operand_role role) { return role == ROLE_IN || role == ROLE_INOUT; }
static inline bool role_writes(enum operand_role role)
{
    return role == ROLE_OUT || role == ROLE_INOUT || role == ROLE_SUM || role == ROLE_INDEX;
}

#endif
