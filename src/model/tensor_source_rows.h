// SPDX-License-Identifier: Apache-2.0
// model/tensor_source_rows.h: matrices that a file has in one, their rows in turns: a head's query and its gate, a key
// head's q, k, v and z, an expert's gate and up. Whole rows are moved, so that every format stays what it is.
#ifndef MODEL_TENSOR_SOURCE_ROWS_H
#define MODEL_TENSOR_SOURCE_ROWS_H

#include "model/tensor_source.h"

enum { ROW_RUNS_MAX = 3 };

struct row_run {
    int first, count;
};

// Of groups of `each` rows the first run of every group, then the second one of every group ... As (rows, cols), or of
// experts, (count, each, cols), the one run of each of them. `word` tells it apart from others of the same tensor.
const struct tensor *tensor_source_row_runs(struct arena *arena, const struct tensor *tensor, const char *word, int each,
                                    const struct row_run *runs, int count);

#endif
