// SPDX-License-Identifier: Apache-2.0
// kernel/testcase_draw.h: how test cases are drawn; for the files kernel/testcase*.c alone.
#ifndef KERNEL_TESTCASE_DRAW_H
#define KERNEL_TESTCASE_DRAW_H

#include "base/random.h"
#include "kernel/testcase.h"

enum { NOTHING = 0xFF }; // bytes that are NaN in every format that can say so

struct draw {
    struct testcase *testcase;
    const struct kernel *kernel;
    const struct testcase_options *wanted;
    uint64_t seed;
    bool is_long; // on a GPU, now and then: prefill of more tokens than a tile, or decode far into the sequences
};

int draw_size(struct draw *draw, int low, int high,
              int large); // low to high, both included; `large` in large test cases
bool draw_is_short(const struct draw *draw);
bool draw_is_decode(const struct draw *draw);                  // at most KERNEL_DECODE_ROWS_MAX tokens
bool draw_coin(struct draw *draw);                             // in large test cases always false
struct kv_layout draw_layout(struct draw *draw, int kv_heads); // of any head size that fits

float *draw_values(struct draw *draw, int rows, int width); // of an input: around 1, some far out
float *draw_frequencies(struct draw *draw, int count);
struct weight draw_weight(struct draw *draw, enum dtype dtype, int rows, int cols);

// Room for results, which are (rows, row_values) and NaN at first.
float *draw_output(struct draw *draw, int rows, int row_values);

// The same for operands with a row per token that only the device reads; see `repeats` of the test case.
float *draw_row_values(struct draw *draw, int rows, int width);
float *draw_row_output(struct draw *draw, int rows, int width);
float *draw_output_in_place(struct draw *draw, int rows, int row_values); // holds input at first
uint8_t *draw_output_bytes(struct draw *draw, size_t bytes, int row_values);

int draw_tokens(struct draw *draw, int large_prefill); // of decode or prefill, by the load, or as the step says
void draw_batch(struct draw *draw, int tokens, int vocabulary); // one sequence, and no pages

size_t draw_scratch_bytes(const struct testcase *testcase, const struct kernel *kernel); // that the kernel asks for

// The first matrix has the format asked for; the others any of the row's whose blocks fit `in`.
enum dtype draw_matrix_dtype(struct draw *draw, int index, int in);

// testcase_experts.c
void draw_route(struct draw *draw);
void draw_experts(struct draw *draw);
void draw_combine(struct draw *draw);
bool is_order(const struct testcase *testcase, int output); // of route: where the pairs stand
void read_order(const struct testcase *testcase, int output, float *values);

// testcase_state.c
void draw_conv(struct draw *draw);
void draw_ssm_scan(struct draw *draw);
void draw_gated_delta(struct draw *draw);
bool moves_state(const struct testcase *testcase);          // is it one of these?
bool is_state(const struct testcase *testcase, int output); // of recurrent ops: the states
void read_state(const struct testcase *testcase, float *values);
void undo_state(struct testcase *testcase, const uint8_t *before);

// testcase_cache.c
void draw_transform(struct draw *draw);
void draw_kv_write(struct draw *draw);
void draw_attention(struct draw *draw);
void read_kv_write(const struct testcase *testcase, float *values);
void undo_kv_write(struct testcase *testcase, const uint8_t *before);

#endif
