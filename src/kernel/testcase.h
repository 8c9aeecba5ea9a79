// SPDX-License-Identifier: Apache-2.0
// kernel/testcase.h: random but realistic arguments for any op, drawn from a seed: shapes of every size a row allows,
// grouped heads, several sequences of different lengths, pages in any order, windows and soft caps.
//   (1) what an op writes lies between guard bytes
//   (2) what no kernel may use is NaN: results before they are written, cache slots behind a token, the pages that a
//       window has given back, the layers beside its own
//   (3) floats are aligned as floats and weights not at all, as in an engine; packed weights by 64 bytes
// Samples lie in this CPU's memory and are f32. What kernels on a GPU get of them is listed as operands.
#ifndef KERNEL_TESTCASE_H
#define KERNEL_TESTCASE_H

#include "base/memory.h"
#include "device/thread_pool.h"
#include "kernel/load.h"

enum { SAMPLE_OUTPUTS_MAX = 4, SAMPLE_SEQUENCES_MAX = 12, SAMPLE_OPERANDS_MAX = 16 };

enum sample_size {
    SAMPLE_VARIED, // past every tile a kernel may have, and below
    SAMPLE_SMALL,  // soon done
    SAMPLE_LARGE,  // for measuring: operands well beyond the caches of a processor
};

// A step of one shape, of large samples for GPUs.
struct sample_step {
    int sequences, rows_each, context; // the last one includes this step's rows
};

struct sample_case {
    enum kernel_load load; // of the row: those among KERNEL_DECODE, or those among KERNEL_PREFILL
    enum dtype weight;     // of rows that list weights
    enum dtype k, v;       // of rows that list cache formats
    bool latent;           // V lies in K
    uint64_t sink;         // of which a sequence's first pages may have one; 0: they are like the others
    int head_dim;          // 0: drawn, among those that fit
    int value_dim;         // of latents, where there is a head_dim
    uint32_t fuses;        // KERNEL_FUSES_*: the neighbours that the row does in passing
    enum sample_size size;
    struct sample_step step; // no sequences: drawn, as the load says
    uint64_t seed;
};

enum { SAMPLE_DISTINCT = 1 << 14 }; // values of an array: longer ones repeat them

struct sample {
    enum op_kind op;
    union op_args args;              // points into the sample, which must stay where it is
    union op_args before, after;     // of the neighbours that are done in passing
    struct transform_args transform; // the same, between `before` and the op itself
    int rows;
    struct batch batch;
    struct batch_sequence sequence[SAMPLE_SEQUENCES_MAX];
    int outputs;
    struct sample_output {
        uint8_t *data;
        size_t bytes;
        int row_values; // of one token's result, once it is read as floats
    } output[SAMPLE_OUTPUTS_MAX];
    uint8_t *pages; // of the cache, page -1 first; NULL: the op has none
    size_t pages_bytes;
    size_t pages_there;  // bytes of pages on a GPU, where those here are repeated; 0: as many as here
    bool repeats;        // the same of what has a row for each token: no more than SAMPLE_DISTINCT values are here
    struct sample_room { // how large a step is assumed that the sample is one of; for GPUs
        int rows, tokens, sequences, rows_each, context;
        int multiprocessors; // of a device that is smaller than the one it runs on; 0: as it is
    } room;
    size_t bytes_moved; // read and written, each thing once
    double flops;
    struct thread_pool *team; // borrowed: packs weights; NULL: the caller does
    struct arena arena;
};

// Whether there is a head size that row and formats have in common.
bool sample_is_possible(const struct kernel *kernel, const struct sample_case *wanted);

void sample_open(struct sample *sample, const struct kernel *kernel, const struct sample_case *wanted);
void sample_close(struct sample *sample);

// The arguments as this kernel wants them: weights in its packing, scratch memory, and the neighbours that it does in
// passing. They live as long as the sample.
union op_args *sample_args_for(struct sample *sample, const struct kernel *kernel);

// The same arguments once more, to be changed.
union op_args *sample_copy_args(struct sample *sample, const union op_args *args);

int sample_rows(const struct sample *sample); // of its results

// Drops all tokens but the first few.
void sample_cut(struct sample *sample, int tokens);

// An output's results, (rows, row_values): as they are, or as the cache's formats give them back.
void sample_read(const struct sample *sample, int output, float *values);

// Puts back into an output what the op was free to write, from a copy made before it ran. Then all of it is as it was,
// if the op wrote nothing else.
void sample_undo(struct sample *sample, int output, const uint8_t *before);

bool sample_guards_intact(const struct sample *sample);

// What arguments point to: its place and size here, and what it is in a GPU's memory.
enum sample_type { SAMPLE_F32, SAMPLE_BF16, SAMPLE_BYTES, SAMPLE_SCRATCH /* bytes of no meaning */ };
struct sample_operand {
    void *slot;   // where the arguments have its address
    int rows;     // one for each row of the op; 0: it does not depend on them
    size_t width; // values (or bytes) of a row, or in all
    enum sample_type type;
};

// Lists what a kernel gets of arguments that sample_args_for made and may be written to, its neighbours' included. What
// only the neighbours have between them is not listed. Returns how many there are.
int sample_operands(const struct sample *sample, const struct kernel *kernel, union op_args *args,
                    struct sample_operand out[SAMPLE_OPERANDS_MAX]);

// Rounds what is bfloat16 on a GPU, so that it is the same there and here.
void sample_round(struct sample *sample, const struct kernel *kernel);

#endif
