// SPDX-License-Identifier: Apache-2.0
// kernel/sample.h: random but realistic arguments for any op, drawn from a seed: shapes of every size a row allows,
// grouped heads, several sequences of different lengths, pages in any order, windows and soft caps.
//   (1) what an op writes lies between guard bytes
//   (2) what no kernel may use is NaN: results before they are written, cache slots behind a token, the pages that a
//       window has given back, the layers beside its own
//   (3) floats are aligned as floats and weights not at all, as in an engine; packed weights by 64 bytes
#ifndef KERNEL_SAMPLE_H
#define KERNEL_SAMPLE_H

#include "base/memory.h"
#include "kernel/kernel.h"

enum { SAMPLE_OUTPUTS_MAX = 3, SAMPLE_SEQUENCES_MAX = 4 };

enum sample_size {
    SAMPLE_VARIED, // past every tile a kernel may have, and below
    SAMPLE_SMALL,  // soon done
    SAMPLE_LARGE,  // for measuring: operands well beyond the caches of a processor
};

struct sample_case {
    enum kernel_load load; // KERNEL_FEW or KERNEL_MANY
    enum dtype weight;     // of rows that list weights
    enum dtype k, v;       // of rows that list cache formats
    int head_dim;          // 0: drawn, among those that fit
    enum sample_size size;
    uint64_t seed;
};

struct sample {
    enum op_kind op;
    union op_args args;    // points into the sample, which must stay where it is
    int rows;
    struct batch batch;
    struct batch_sequence sequence[SAMPLE_SEQUENCES_MAX];
    int outputs;
    struct sample_output {
        uint8_t *data;
        size_t bytes;
        int row_values;    // of one token's result, once it is read as floats
    } output[SAMPLE_OUTPUTS_MAX];
    size_t bytes_moved;    // read and written, each thing once
    double flops;
    struct arena arena;
};

// Whether there is a head size that row and formats have in common.
bool sample_is_possible(const struct kernel *kernel, const struct sample_case *wanted);

void sample_open(struct sample *sample, const struct kernel *kernel, const struct sample_case *wanted);
void sample_close(struct sample *sample);

// The arguments as this kernel wants them: weights in its packing, and scratch memory. They live as long as the sample.
const union op_args *sample_args_for(struct sample *sample, const struct kernel *kernel);

int sample_rows(const struct sample *sample); // of its results

// Drops all tokens but the first few.
void sample_cut(struct sample *sample, int tokens);

// An output's results, (rows, row_values): as they are, or as the cache's formats give them back.
void sample_read(const struct sample *sample, int output, float *values);

// Puts back into an output what the op was free to write, from a copy made before it ran. Then all of it is as it was,
// if the op wrote nothing else.
void sample_undo(struct sample *sample, int output, const uint8_t *before);

bool sample_guards_intact(const struct sample *sample);

#endif
