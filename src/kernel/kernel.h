// SPDX-License-Identifier: Apache-2.0
// kernel/kernel.h: a kernel is a row: what it computes, for which formats, on what hardware. Requirements are data;
// a word that a row does not list is a word it does not support.
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include "device/cuda.h"
#include "device/device.h"
#include "kernel/op.h"

// The load that a step puts on an op, by its rows: tokens of the step, or for ops that go along a sequence (attention,
// kv state) the most tokens of one sequence. Each op is bound to one row of the table for each load, so that nothing is
// left to choose when it is launched. All rows that an op is bound to must give a token the same bits, or the size of a
// chunk would change answers.
enum kernel_load {
    KERNEL_ROWS_1 = 1 << 0,
    KERNEL_ROWS_8 = 1 << 1,
    KERNEL_ROWS_32 = 1 << 2,
    KERNEL_ROWS_64 = 1 << 3,
    KERNEL_ROWS_128 = 1 << 4,
    KERNEL_ROWS_MORE = 1 << 5,
    KERNEL_DECODE_SMALL = 1 << 6, // attention: decode with no more work tiles than SMs, so that each CTA has one alone

    KERNEL_DECODE = KERNEL_ROWS_1 | KERNEL_ROWS_8 | KERNEL_DECODE_SMALL,
    KERNEL_PREFILL = KERNEL_ROWS_32 | KERNEL_ROWS_64 | KERNEL_ROWS_128 | KERNEL_ROWS_MORE,
    KERNEL_ANY = KERNEL_DECODE | KERNEL_PREFILL
};
enum { KERNEL_LOADS = 7, KERNEL_DECODE_ROWS_MAX = 8 };

// The order in which a row reads weights, where it is not the file's. Weights are packed once, when they are loaded.
struct kernel_packing {
    const char *name;
    size_t (*bytes)(enum dtype dtype, int rows, int cols);
    // Packs one of `chunks` ranges of a matrix as the file has it. `out` is 64-byte aligned.
    void (*pack)(const struct weight *weight, int chunk, int chunks, void *out);
};

// A row fuses these neighbours of its op in the list, if they pass their results on to no other op.
enum {
    KERNEL_FUSES_NORM = 1,       // linear: the norm of its input
    KERNEL_FUSES_ACT_MUL = 2,    // linear with gate and up: the activation of both
    KERNEL_FUSES_ADD = 4,        // linear: adding its result to the residual stream
    KERNEL_FUSES_ROPE = 8,       // kv_write: rotating q and k
    KERNEL_FUSES_TRANSFORM = 16, // kv_write: what keys are stored as
};

// How large a step may get that is being described, and on what.
struct cuda_shape {
    int rows; // of this op
    int tokens, sequences;
    int rows_each; // the most rows of one sequence
    int context;   // the longest sequence, this step's tokens included
    int sm, multiprocessors;
    int shared_bytes; // that one block may have
};

// One launch of a function of the embedded cubins, or one product by cuBLASLt.
enum { CUDA_CALLS_MAX = 8, CUDA_PARAMS_BYTES = 512, KERNEL_FUNCTIONS_MAX = 5 };
struct cuda_call {
    const char *function; // NULL: `product` instead, of cuBLASLt
    unsigned grid[3], block;
    unsigned shared_bytes; // dynamic
    size_t params_bytes;
    _Alignas(16) unsigned char params[CUDA_PARAMS_BYTES];
    struct cuda_product product;
};

// How large an op may get: what scratch memory depends on.
struct kernel_extent {
    uint64_t weights;       // formats of its matrices
    int rows, width;        // of what linear and, for each pair, experts read, and of what attention gives
    int heads;              // of attention, as are these:
    int sequences, context; // in one step, and of the longest
};

struct kernel {
    const char *name;
    enum device_kind device;
    enum op_kind op;
    int priority; // higher is tried first; the reference has 0
    enum kernel_load load;
    uint32_t needs;           // CPU_* features
    const int *architectures; // CUDA: exactly those it is compiled for (90 for sm_90), ends in 0
    int sm_min;               // CUDA: the first that multiplies its operands as they are; 0: any
    uint64_t weights;         // sets of dtypes (DTYPE_BIT): the matrix of embed and linear
    uint64_t int16;           // those of `weights` for which activations are rounded to 16 bits (kernel/int16.h)
    uint64_t int8;            // those for which they are rounded to 8 bits (kernel/int8.h): only where it is asked for
    uint64_t nvfp4;           // those for which they are rounded to 4 bits (kernel/nvfp4.h): only where it is asked for
    uint64_t dequantised; // CUDA: those of `weights` that are no operands of its products until they are dequantised
    const struct kernel_packing *packing; // of `weights`; NULL: as they lie in the file
    int rows_multiple;                    // linear: of the rows of its matrices; 0: any
    int cols_multiple;                    // linear and experts: of their columns; 0: any
    uint64_t k, v;                        // of kv_write and attention
    uint64_t latents;                     // of the same, where V lies in K (kv/layout.h)
    uint64_t sink;                        // of the same: formats of sink pages, where the other pages have another one,
    uint64_t sink_beside;                 // and beside which formats of the others; 0: any
    int head_dim;                         // attention: exactly that of K and of V; 0: any
    int head_dim_multiple; // of transform, kv_write and attention, of latents those of K and of V; 0: any
    int head_dim_max;      // of rope, too: of V and, unless V lies in K, of K; 0: any
    uint64_t x;            // norm: what its input is in; 0: anything
    bool rotary_first;     // rope: only of heads that begin with their rotary dims
    int conv_kernel_max;   // conv: 0: any
    int keys_max;          // ssm_scan and gated_delta: of a head; 0: any
    int keys_multiple;     // gated_delta: of those, and of all q, k and v of a token together; 0: any
    float tolerance;       // how far it may be from the reference (kernel/check.h); 0: as its op says
    int shared_bytes;      // CUDA: the most that one block takes, static and dynamic; 0: no more than any device has
    uint32_t fuses;        // KERNEL_FUSES_*: neighbours in the list of ops that it fuses

    // args is the struct of the op. Computes one of `chunks` ranges of the work, takes no lock and writes nowhere else.
    void (*run)(const void *args, int chunk, int chunks);

    // All callers do this before any of them runs; NULL: nothing. It may fill the scratch memory of the op's arguments,
    // which has as many bytes as scratch_bytes asks for; NULL: it needs none.
    void (*prepare)(const void *args, int chunk, int chunks);
    size_t (*scratch_bytes)(const struct kernel_extent *extent);

    // CUDA, in place of run and prepare: writes down the launches that do this op and returns how many there are. It
    // computes grids and parameters and chooses no function: they are those of the row. It depends on nothing but its
    // arguments and touches no device.
    int (*describe)(const struct kernel *kernel, const void *args, const struct cuda_shape *shape,
                    struct cuda_call calls[CUDA_CALLS_MAX]);
    const char *functions[KERNEL_FUNCTIONS_MAX]; // CUDA: all it may launch; the first is its own, after which it is
                                                 // named, the others prepare for it or combine what it leaves
    const void *variant; // CUDA: what its family's describe has to know of it: tile sizes, warps, stages
    const char *slow;    // why it is slow and what would avoid it, where a plan that lands on it should say so; or NULL
    uint64_t slow_kv;    // attention: `slow` holds if K or V is in one of these; 0: always
};

// How many 8-bit operands a row makes of an activation that it multiplies with such weights; 0: it multiplies floats.
static inline int kernel_int8_planes(const struct kernel *kernel, enum dtype weights)
{
    return kernel->int8 >> weights & 1 ? 1 : kernel->int16 >> weights & 1 ? 2 : 0;
}

// Walks all rows of this build, in no particular order: kernel_next(NULL) is the first, NULL comes after the last.
const struct kernel *kernel_next(const struct kernel *kernel);

// The row that defines an op.
const struct kernel *kernel_reference(enum op_kind op);

// A kernel with the arguments it is to run on.
struct kernel_call {
    void (*run)(const void *args, int chunk, int chunks);
    const void *args;
    void (*prepare)(const void *args, int chunk, int chunks); // on all chunks before any runs; NULL: nothing
};

// [*first, *end) is the chunk's range of `count` things: all chunks together cover each of them once.
static inline void kernel_range(int count, int chunk, int chunks, int *first, int *end)
{
    *first = (int)((int64_t)count * chunk / chunks);
    *end = (int)((int64_t)count * (chunk + 1) / chunks);
}

#endif
