// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_rows.h: splits fused matrices whose rows alternate in runs: a head's query and gate, a key head's
// q, k, v and z, an expert's gate and up. Whole rows are copied, so every dtype is kept.
#ifndef MODEL_TENSOR_SOURCE_ROWS_H
#define MODEL_TENSOR_SOURCE_ROWS_H

#include "model/tensor_source.h"

enum { ROW_RUNS_MAX = 3 };

struct row_run {
    int first, count;
};

// From groups of `each` rows takes the first run of every group, then the second run of every group ... The result is
// (rows, cols); of experts, (count, each, cols), the one run of each. `word` makes the tensor's name unique.
const struct tensor *tensor_source_row_runs(struct arena *arena, const struct tensor *tensor, const char *word,
                                            int each, const struct row_run *runs, int count);

#endif
