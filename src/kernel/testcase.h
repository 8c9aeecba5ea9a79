// SPDX-License-Identifier: Apache-2.0
// kernel/testcase.h: random but realistic arguments for any op, drawn from a seed: shapes of every size a row allows,
// grouped heads, several sequences of different lengths, pages in any order, windows and soft caps.
//   (1) what an op writes lies between guard bytes
//   (2) what no kernel may use is NaN: results before they are written, cache slots behind a token, the pages that a
//       window has given back, the layers beside its own
//   (3) floats are aligned as floats and weights not at all, as in an engine; packed weights by 64 bytes
// Test cases lie in this CPU's memory and are f32. What kernels on a GPU get of them is listed as operands.
#ifndef KERNEL_TESTCASE_H
#define KERNEL_TESTCASE_H

#include "base/memory.h"
#include "device/thread_pool.h"
#include "kernel/load.h"

enum { TESTCASE_OUTPUTS_MAX = 4, TESTCASE_SEQUENCES_MAX = 12, TESTCASE_OPERANDS_MAX = 16 };

enum testcase_size {
    TESTCASE_VARIED, // past every tile a kernel may have, and below
    TESTCASE_SMALL,  // soon done
    TESTCASE_LARGE,  // for measuring: operands well beyond the caches of a processor
};

// A step of one shape, of large test cases for GPUs.
struct testcase_step {
    int sequences, rows_each, context; // the last one includes this step's rows
};

struct testcase_options {
    enum kernel_load load; // of the row: those among KERNEL_DECODE, or those among KERNEL_PREFILL
    enum dtype weight;     // of rows that list weights
    enum dtype k, v;       // of rows that list cache formats
    bool latent;           // V lies in K
    uint64_t sink;         // formats of which sink pages may have one; 0: there are no sink pages
    int head_dim;          // 0: drawn, among those that fit
    int value_dim;         // of latents, where there is a head_dim
    uint32_t fuses;        // KERNEL_FUSES_*: the neighbours that the row fuses
    enum testcase_size size;
    struct testcase_step step; // no sequences: drawn, as the load says
    uint64_t seed;
};

enum { TESTCASE_DISTINCT = 1 << 14 }; // values of an array: longer ones repeat them

struct testcase {
    enum op_kind op;
    union op_args args;          // points into the test case, which must stay where it is
    union op_args before, after; // of fused neighbours
    union op_args transform;     // the same, between `before` and the op itself
    int rows;
    struct batch batch;
    struct batch_sequence sequence[TESTCASE_SEQUENCES_MAX];
    int outputs;
    struct testcase_output {
        uint8_t *data;
        size_t bytes;
        int row_values; // of one token's result, once it is read as floats
    } output[TESTCASE_OUTPUTS_MAX];
    uint8_t *pages; // of the cache, page -1 first; NULL: the op has none
    size_t pages_bytes;
    size_t pages_there;    // bytes of pages on a GPU, where those here are repeated; 0: as many as here
    bool repeats;          // the same of what has a row for each token: no more than TESTCASE_DISTINCT values are here
    struct testcase_room { // how large a step is assumed that the test case is one of; for GPUs
        int rows, tokens, sequences, rows_each, context;
        int multiprocessors; // of a device that is smaller than the one it runs on; 0: as it is
    } room;
    size_t bytes_moved; // read and written, each thing once
    double flops;
    struct thread_pool *pool; // borrowed: packs weights; NULL: the caller does
    struct arena arena;
};

// Whether there is a head size that row and formats have in common.
bool testcase_is_possible(const struct kernel *kernel, const struct testcase_options *wanted);

void testcase_open(struct testcase *testcase, const struct kernel *kernel, const struct testcase_options *wanted);
void testcase_close(struct testcase *testcase);

// The arguments as this kernel wants them: weights in its packing, scratch memory, and its fused neighbours
// They live as long as the test case.
union op_args *testcase_args_for(struct testcase *testcase, const struct kernel *kernel);

// The same arguments once more, to be changed.
union op_args *testcase_copy_args(struct testcase *testcase, const union op_args *args);

int testcase_rows(const struct testcase *testcase); // of its results

// Drops all tokens but the first few.
void testcase_cut(struct testcase *testcase, int tokens);

// An output's results, (rows, row_values): as they are, or as the cache's formats give them back.
void testcase_read(const struct testcase *testcase, int output, float *values);

// Puts back into an output what the op was free to write, from a copy made before it ran. Then all of it is as it was,
// if the op wrote nothing else.
void testcase_undo(struct testcase *testcase, int output, const uint8_t *before);

bool testcase_guards_intact(const struct testcase *testcase);

// Describes memory that arguments point to: its place and size here, and its type in a GPU's memory.
enum testcase_type { TESTCASE_F32, TESTCASE_BF16, TESTCASE_BYTES, TESTCASE_SCRATCH /* bytes of no meaning */ };
struct testcase_operand {
    void **slot;  // where the arguments have its address
    int rows;     // one for each row of the op; 0: it does not depend on them
    size_t width; // values (or bytes) of a row, or in all
    enum testcase_type type;
};

// Lists the memory that arguments of testcase_args_for point to, which may be changed, those of fused neighbours
// included. Results that only fused neighbours pass to each other are not listed. Returns how many there are.
int testcase_operands(const struct testcase *testcase, const struct kernel *kernel, union op_args *args,
                      struct testcase_operand out[TESTCASE_OPERANDS_MAX]);

// Rounds what is bfloat16 on a GPU, so that it is the same there and here.
void testcase_round(struct testcase *testcase, const struct kernel *kernel);

#endif
