// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_source_rows.h"

#include <assert.h>

// Of this family.
struct stored_layout {
    int64_t groups;
    int each;
    struct stored_rows_run runs[STORED_RUNS_MAX];
};

// The file's row that is the tensor's `row`; *left: how many follow that are neighbours there, too, itself included.
static int64_t row_of(const struct stored_layout *layout, int64_t row, int64_t *left)
{
    const struct stored_rows_run *run = layout->runs;
    for (; row >= layout->groups * run->count; run++)
        row -= layout->groups * run->count;
    *left = run->count - row % run->count;
    return row / run->count * layout->each + run->first + row % run->count;
}

static void read_rows(const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
    const struct stored *stored = tensor->stored;
    size_t row_bytes = dtype_bytes(tensor->dtype, (size_t)stored_cols(tensor));
    char *to = out;
    for (int64_t row = first, left, end = first + count; row < end; row += left) {
        int64_t from = row_of(stored->layout, row, &left);
        left = left < end - row ? left : end - row;
        stored_read(stored->codes, from, left, to);
        to += (size_t)left * row_bytes;
    }
}

static bool check_source(const struct tensor *tensor, struct error *err)
{
    return stored_check(tensor->stored->codes, err);
}

const struct tensor *stored_rows_of(struct arena *arena, const struct tensor *tensor, const char *word, int each,
                                    const struct stored_rows_run *runs, int count)
{
    struct tensor *made = ARENA_NEW(arena, struct tensor, 1);
    struct stored *stored = ARENA_NEW(arena, struct stored, 1);
    struct stored_layout *layout = ARENA_NEW(arena, struct stored_layout, 1);
    int64_t rows = 0;
    assert(count <= STORED_RUNS_MAX && (tensor->rank == 2 || count == 1));
    *layout = (struct stored_layout){ .groups = tensor_values(tensor) / stored_cols(tensor) / each, .each = each };
    for (int i = 0; i < count; i++) {
        layout->runs[i] = runs[i];
        rows += runs[i].count;
    }
    *stored = (struct stored){ .read = read_rows,
                               .check = check_source,
                               .codes = tensor,
                               .layout = layout,
                               .form = tensor->stored ? tensor->stored->form : NULL,
                               .why = tensor->stored ? tensor->stored->why : NULL };
    *made = *tensor;
    made->name = arena_format(arena, "%s (from %s)", tensor->name, word);
    made->data = NULL;
    made->stored = stored;
    made->shape[made->rank - 2] = tensor->rank == 3 ? rows : layout->groups * rows;
    made->bytes = dtype_bytes(made->dtype, (size_t)tensor_values(made));
    return made;
}
