// SPDX-License-Identifier: Apache-2.0
// model/tensor_lookup_experts.c: finds the matrices of a mixture's experts and stacks them into one tensor.
#include <stdio.h>
#include <string.h>

#include "model/tensor_lookup_internal.h"
#include "model/tensor_source_rows.h"

// ---- one tensor per expert ----

enum part { PART_TENSOR, PART_BIAS, PART_SCALE };

static const struct tensor *part_of(const struct op_matrix *matrix, enum part part)
{
    return part == PART_TENSOR ? matrix->tensor : part == PART_BIAS ? matrix->bias : matrix->scale;
}

static const struct tensor *stack(struct graph *graph, enum weight_name name, const struct op_matrix *each,
                                  enum part part, int count)
{
    static const char *const suffixes[] = { "weight", "bias", "scale" };
    struct arena *arena = &graph->model->arena;
    const struct tensor **parts = ARENA_NEW(arena, const struct tensor *, count);
    char full[FIND_NAME_BYTES_MAX];
    for (int i = 0; i < count; i++) {
        parts[i] = part_of(&each[i], part);
        if (!parts[i] != !parts[0] || (parts[0] && parts[i]->dtype != parts[0]->dtype))
            return find_trouble(graph, name, suffixes[part], "lies in another way for expert %d than for the first", i);
    }
    find_name_of(graph, name, suffixes[part], full);
    return parts[0] ? tensor_source_stack(arena, arena_text(arena, full, strlen(full)), parts, count) : NULL;
}

static struct op_matrix find_each(struct graph *graph, enum weight_name name, int count, int64_t rows, int64_t cols,
                                  enum buffer out)
{
    struct op_matrix *each = ARENA_NEW(&graph->model->arena, struct op_matrix, count), matrix = { .out = out };
    for (int i = 0; i < count && !graph->failed; i++) {
        graph->find->expert = i;
        each[i] = find_matrix(graph, name, rows, cols, out);
    }
    graph->find->expert = -1;
    if (graph->failed)
        return matrix;
    matrix.tensor = stack(graph, name, each, PART_TENSOR, count);
    matrix.bias = stack(graph, name, each, PART_BIAS, count);
    matrix.scale = stack(graph, name, each, PART_SCALE, count);
    return matrix;
}

// ---- stacked tensors ----

struct op_matrix find_experts(struct graph *graph, enum weight_name name, int count, int64_t rows, int64_t cols,
                              enum buffer out)
{
    struct op_matrix matrix = { .out = out };
    struct tensor all = find_shape(graph, 3, count, rows, cols);
    const struct scheme *scheme;
    if (find_is_each(graph, name) && !graph->model->imagined)
        return find_each(graph, name, count, rows, cols, out);
    if (graph->failed || !find_scheme(graph, name, &scheme))
        return matrix;
    if (scheme && graph->model->imagined)
        find_quantised(graph, name, scheme, all, &matrix);
    else
        matrix.tensor = find_plain(graph, name, all);
    if (find_has(graph, name, "bias"))
        matrix.bias = find_floats(graph, name, "bias", find_shape(graph, 2, count, rows, 0));
    if (graph->source.checkpoint->gguf && find_has(graph, name, "scale"))
        matrix.scale = find_floats(graph, name, "scale", find_shape(graph, 1, count, 0, 0));
    return matrix;
}

struct op_matrix find_stacked(struct graph *graph, enum weight_name name, int count, int64_t rows, int64_t cols,
                              enum buffer out)
{
    struct tensor all = find_shape(graph, 3, count, rows, cols);
    return (struct op_matrix){ .out = out,
                               .tensor = graph->source.json ? find_floats(graph, name, "", all)
                                                            : find_plain(graph, name, all) };
}

struct op_matrix find_half(struct graph *graph, enum weight_name name, int half, int count, int64_t rows, int64_t cols,
                           enum buffer out)
{
    struct op_matrix matrix = find_stacked(graph, name, count, 2 * rows, cols, out);
    const struct row_run run = { half * (int)rows, (int)rows };
    if (matrix.tensor)
        matrix.tensor = tensor_source_row_runs(&graph->model->arena, matrix.tensor, half ? "up" : "gate", 2 * (int)rows,
                                               &run, 1);
    return matrix;
}

// ---- interleaved rows ----

struct interleaved {
    enum weight_name name;
    int first, step;
    struct tensor wanted; // (count, rows, cols)
};

static const struct tensor *find_blocks(struct graph *graph, const struct interleaved *interleaved,
                                        const struct scheme *scheme)
{
    int64_t count = interleaved->wanted.shape[0], rows = interleaved->wanted.shape[1] * interleaved->step,
            cols = interleaved->wanted.shape[2];
    const struct tensor *codes = find_tensor(graph, interleaved->name, "_blocks"),
                        *scales = find_tensor(graph, interleaved->name, "_scales");
    struct tensor codes_shape = { .rank = 4, .shape = { count, rows, cols / 32, 16 } };
    struct tensor scales_shape = { .rank = 3, .shape = { count, rows, cols / 32 } };
    char suffix[48];
    if (!codes || !scales)
        return find_trouble(graph, interleaved->name, codes ? "_scales" : "_blocks",
                            "is missing; the checkpoint declares %s for this module", scheme->word);
    if (codes->dtype != DTYPE_U8 || !(LAYOUT_E8M0 >> scales->dtype & 1))
        return find_trouble(graph, interleaved->name, codes->dtype != DTYPE_U8 ? "_blocks" : "_scales",
                            "is not stored as bytes, as it is in %s", scheme->word);
    if (cols % 32)
        return find_trouble(graph, interleaved->name, "_blocks", "has rows of %lld values; %s needs a multiple of 32",
                            (long long)cols, scheme->word);
    if (!find_check_shape(graph, interleaved->name, "_blocks", codes, &codes_shape)
        || !find_check_shape(graph, interleaved->name, "_scales", scales, &scales_shape))
        return NULL;
    struct tensor_source *source = ARENA_NEW(&graph->model->arena, struct tensor_source, 1);
    *source = (struct tensor_source){ .codes = codes, .scales = scales };
    struct tensor resolved = find_resolve(scheme, interleaved->wanted, source);
    source->row_first = interleaved->first;
    source->row_step = interleaved->step;
    snprintf(suffix, sizeof suffix, "_blocks (%d of %d)", interleaved->first + 1, interleaved->step);
    return find_new(graph, interleaved->name, suffix, resolved);
}

// Float tensors are (count, cols, rows): transposed.
static const struct tensor *find_transposed(struct graph *graph, const struct interleaved *interleaved)
{
    const int64_t *wanted = interleaved->wanted.shape;
    const struct tensor *all = find_floats(graph, interleaved->name, "",
                                           find_shape(graph, 3, wanted[0], wanted[2], wanted[1] * interleaved->step));
    return all ? tensor_source_transpose(&graph->model->arena, all, interleaved->first, interleaved->step) : NULL;
}

// Matrices from one file tensor need different names.
static void imagine_interleaved(struct graph *graph, const struct interleaved *interleaved, const struct scheme *scheme,
                                struct op_matrix *matrix)
{
    struct arena *arena = &graph->model->arena;
    struct tensor *own = ARENA_NEW(arena, struct tensor, 1);
    find_quantised(graph, interleaved->name, scheme, interleaved->wanted, matrix);
    if (!matrix->tensor)
        return;
    *own = *matrix->tensor;
    own->name = arena_format(arena, "%s (%d of %d)", own->name, interleaved->first + 1, interleaved->step);
    matrix->tensor = own;
}

struct op_matrix find_alternating(struct graph *graph, enum weight_name name, int first, int step, int count,
                                  int64_t rows, int64_t cols, enum buffer out)
{
    struct op_matrix matrix = { .out = out };
    struct interleaved interleaved = { name, first, step, find_shape(graph, 3, count, rows, cols) };
    const struct scheme *scheme;
    if (graph->failed || !find_scheme(graph, name, &scheme))
        return matrix;
    if (scheme && graph->model->imagined)
        imagine_interleaved(graph, &interleaved, scheme, &matrix);
    else
        matrix.tensor = scheme ? find_blocks(graph, &interleaved, scheme) : find_transposed(graph, &interleaved);
    if (find_has(graph, name, "_bias") || graph->model->imagined) {
        const struct tensor *bias = find_floats(graph, name, "_bias", find_shape(graph, 2, count, rows * step, 0));
        matrix.bias = bias ? tensor_source_stride(&graph->model->arena, bias, first, step) : NULL;
    }
    return matrix;
}
