// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_source_rows.h"

#include <assert.h>

// Detail of sources made here.
struct source_detail {
    int64_t groups;
    int each;
    struct row_run runs[ROW_RUNS_MAX];
};

// Maps the tensor's row to the file's row; *left is the number of rows, itself included, that are contiguous in the
// file.
static int64_t row_of(const struct source_detail *layout, int64_t row, int64_t *left)
{
    const struct row_run *run = layout->runs;
    for (; row >= layout->groups * run->count; run++)
        row -= layout->groups * run->count;
    *left = run->count - row % run->count;
    return row / run->count * layout->each + run->first + row % run->count;
}

static void read_rows(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct tensor_source *source = tensor->source;
    size_t row_bytes = dtype_bytes(tensor->dtype, (size_t)tensor_cols(tensor));
    char *to = out;
    for (int64_t row = first, left, end = first + count; row < end; row += left) {
        int64_t from = row_of(source->detail, row, &left);
        left = left < end - row ? left : end - row;
        tensor_source_read(source->codes, from, left, to);
        to += (size_t)left * row_bytes;
    }
}

const struct tensor *tensor_source_row_runs(struct arena *arena, const struct tensor *tensor, const char *word,
                                            int each, const struct row_run *runs, int count)
{
    struct source_detail *layout = ARENA_NEW(arena, struct source_detail, 1);
    int64_t rows = 0;
    assert(count <= ROW_RUNS_MAX && (tensor->rank == 2 || count == 1));
    *layout = (struct source_detail){ .groups = tensor_values(tensor) / tensor_cols(tensor) / each, .each = each };
    for (int i = 0; i < count; i++) {
        layout->runs[i] = runs[i];
        rows += runs[i].count;
    }
    struct tensor shape = *tensor;
    shape.name = arena_format(arena, "%s (from %s)", tensor->name, word);
    shape.shape[shape.rank - 2] = tensor->rank == 3 ? rows : layout->groups * rows;
    return tensor_source_new(arena, shape,
                             (struct tensor_source){ .read = read_rows,
                                                     .check = tensor_source_check_codes,
                                                     .codes = tensor,
                                                     .detail = layout,
                                                     .label = tensor->source ? tensor->source->label : NULL,
                                                     .why = tensor->source ? tensor->source->why : NULL });
}
