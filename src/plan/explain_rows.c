// SPDX-License-Identifier: Apache-2.0
// plan/explain_rows.c: the rows that ops are bound to, in words: those of all loads in one line for each kind of matrix
// and of attention, and for programs every row with its loads, layers and functions.
#include <ctype.h>
#include <string.h>

#include "plan/explain_parts.h"

enum { RUNS_MAX = KERNEL_LOADS };

// Loads next to each other that have the same row.
struct run {
    const struct kernel *row;
    int first, last; // loads
};

struct explain_rows explain_rows_of(const struct plan *plan, int op, int matrix)
{
    struct explain_rows rows;
    for (int load = 0; load < KERNEL_LOADS; load++)
        rows.row[load] = plan->ops[op].rows[load][matrix];
    return rows;
}

bool explain_same_rows(const struct explain_rows *a, const struct explain_rows *b) { return !memcmp(a, b, sizeof *a); }

// All loads but that of small steps, which is beside the others.
static int runs_of(const struct explain_rows *rows, struct run runs[RUNS_MAX])
{
    int count = 0;
    for (int load = 0; load < KERNEL_LOAD_SMALL; load++) {
        if (count && runs[count - 1].row == rows->row[load])
            runs[count - 1].last = load;
        else
            runs[count++] = (struct run){ rows->row[load], load, load };
    }
    return count;
}

static const struct kernel *small_row(const struct explain_rows *rows)
{
    const struct kernel *small = rows->row[KERNEL_LOAD_SMALL];
    return small && small != rows->row[0] ? small : NULL;
}

// ---- text ----

// How much of a name comes before its last part: "linear_wgmma_int4_32_" of linear_wgmma_int4_32_64.
static size_t stem_of(const char *name)
{
    const char *last = strrchr(name, '_');
    return last ? (size_t)(last - name) + 1 : 0;
}

// Whether names differ in their last part alone, which is a size.
static bool are_alike(const char *a, const char *b)
{
    size_t stem = stem_of(a);
    return stem && stem == stem_of(b) && !strncmp(a, b, stem) && isdigit((unsigned char)a[stem])
        && isdigit((unsigned char)b[stem]);
}

static int last_alike(const struct run *runs, int count, int first)
{
    int last = first;
    while (last + 1 < count && are_alike(runs[first].row->name, runs[last + 1].row->name))
        last++;
    return last;
}

// "a", or "stem_{32,64}" of several.
static void add_names(struct strbuf *out, const struct run *runs, int first, int last)
{
    const char *name = runs[first].row->name;
    size_t stem = stem_of(name);
    if (first == last) {
        strbuf_add_text(out, name);
        return;
    }
    strbuf_add_format(out, "%.*s{", (int)stem, name);
    for (int i = first; i <= last; i++)
        strbuf_add_format(out, "%s%s", i > first ? "," : "", runs[i].row->name + stem);
    strbuf_add_byte(out, '}');
}

void explain_add_rows(struct strbuf *out, const struct explain_rows *rows)
{
    struct run runs[RUNS_MAX];
    int count = runs_of(rows, runs);
    for (int first = 0, last; first < count; first = last + 1) {
        last = last_alike(runs, count, first);
        strbuf_add_text(out, first ? ", " : "");
        add_names(out, runs, first, last);
        if (first == 0 && small_row(rows))
            strbuf_add_format(out, " (%s in small steps)", small_row(rows)->name);
        if (last + 1 < count)
            strbuf_add_format(out, kernel_load_most(runs[last].last) == 1 ? " for %d token" : " up to %d tokens",
                              kernel_load_most(runs[last].last));
        else if (first)
            strbuf_add_text(out, " beyond");
    }
}

// Lines of `text` are broken between words, and go on below the first word of a line.
static void add_wrapped(struct strbuf *out, const char *text)
{
    enum { WIDTH = 100, INDENT = 10 };
    size_t left = strlen(text), room = WIDTH;
    while (left > room) {
        size_t end = room;
        while (end && text[end] != ' ')
            end--;
        if (!end)
            break;
        strbuf_add(out, text, end);
        strbuf_add_format(out, "\n%*s", INDENT, "");
        text += end + 1;
        left -= end + 1;
        room = WIDTH - INDENT;
    }
    strbuf_add_format(out, "%s\n", text);
}

// ---- weights ----

static uint64_t set_of(const struct kernel *kernel, enum explain_set set)
{
    return set == EXPLAIN_INT16 ? kernel->int16
        : set == EXPLAIN_INT8   ? kernel->int8
        : set == EXPLAIN_NVFP4  ? kernel->nvfp4
                                : kernel->dequantised;
}

uint64_t explain_weights(const struct plan *plan, const struct explain_rows *rows, enum explain_set set)
{
    uint64_t formats = 0;
    for (int i = 0; i < plan->model->op_count; i++)
        for (int j = 0; j < plan->model->ops[i].matrices; j++) {
            struct explain_rows own = explain_rows_of(plan, i, j);
            if (!rows || explain_same_rows(rows, &own))
                formats |= set_of(own.row[0], set) & (uint64_t)1 << plan->model->ops[i].matrix[j].tensor->dtype;
        }
    return formats;
}

static bool multiplies(enum op_kind kind)
{
    return kind == OP_LINEAR || kind == OP_EXPERTS || kind == OP_PER_HEAD_LINEAR;
}

static bool is_first(const struct plan *plan, int op, int matrix, const struct explain_rows *rows)
{
    for (int i = 0; i <= op; i++)
        for (int j = 0; j < plan->model->ops[i].matrices && (i < op || j < matrix); j++) {
            struct explain_rows own = explain_rows_of(plan, i, j);
            if (plan->model->ops[i].kind == plan->model->ops[op].kind && explain_same_rows(rows, &own))
                return false;
        }
    return true;
}

static void add_formats(struct strbuf *out, const char *words, uint64_t formats)
{
    strbuf_add_text(out, formats ? words : "");
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (formats >> dtype & 1)
            strbuf_add_format(out, " %s", dtype_word((enum dtype)dtype));
}

// On a GPU: whether weights are read in their own format.
static void add_matrix(const struct plan *plan, enum op_kind kind, const struct explain_rows *rows, struct strbuf *out)
{
    uint64_t dequantised = explain_weights(plan, rows, EXPLAIN_UNPACKED);
    struct strbuf line = { 0 };
    strbuf_add_format(&line, "%-9s ", op_word(kind));
    explain_add_rows(&line, rows);
    add_formats(&line, "; activations in 16 bits for weights in", explain_weights(plan, rows, EXPLAIN_INT16));
    add_formats(&line, "; activations rounded to int8 for weights in", explain_weights(plan, rows, EXPLAIN_INT8));
    add_formats(&line, "; activations rounded to 4 bits for weights in", explain_weights(plan, rows, EXPLAIN_NVFP4));
    add_formats(&line, "; dequantised in registers:", dequantised);
    strbuf_add_text(&line, rows->row[0]->device == DEVICE_CUDA && !dequantised ? "; weights read as they are" : "");
    if (rows->row[0]->nvfp4)
        strbuf_add_text(&line,
                        " if cuBLASLt has such products, which it is asked when the model is loaded; without "
                        "--linear-kernel, other kernels serve");
    add_wrapped(out, line.data);
    strbuf_free(&line);
}

void explain_add_matrices(const struct plan *plan, struct strbuf *out)
{
    for (int i = 0; i < plan->model->op_count; i++)
        for (int j = 0; j < plan->model->ops[i].matrices && multiplies(plan->model->ops[i].kind); j++) {
            struct explain_rows rows = explain_rows_of(plan, i, j);
            if (is_first(plan, i, j, &rows))
                add_matrix(plan, plan->model->ops[i].kind, &rows, out);
        }
}

// ---- attention ----

// A line for each run of layers whose attention has the same rows.
void explain_add_attention_rows(const struct plan *plan, struct strbuf *out)
{
    int layers = plan->model->config.layers;
    for (int first = 0, last; first < layers; first = last + 1) {
        int op = explain_op_of(plan, first, OP_ATTENTION);
        last = first;
        if (op < 0)
            continue;
        struct explain_rows rows = explain_rows_of(plan, op, 0);
        for (int next = first + 1; next < layers; next++) {
            int other = explain_op_of(plan, next, OP_ATTENTION);
            struct explain_rows own = explain_rows_of(plan, other < 0 ? op : other, 0);
            if (!explain_same_rows(&rows, &own))
                break;
            last = other < 0 ? last : next;
        }
        struct strbuf line = { 0 };
        strbuf_add_format(&line, "attention %s: ", explain_range(first, last).text);
        explain_add_rows(&line, &rows);
        add_wrapped(out, line.data);
        strbuf_free(&line);
    }
}

// ---- all rows ----

static bool has_row(const struct plan_op *bound, const struct kernel *row)
{
    for (int load = 0; load < KERNEL_LOADS && !bound->left_out; load++)
        for (int i = 0; i < LINEAR_OUTPUTS_MAX && !bound->fused[load]; i++)
            if (bound->rows[load][i] == row)
                return true;
    return false;
}

// Where a row is bound: its loads, and the layers of those ops, [0] for ops outside the layers. Fused ops have no row.
static enum kernel_load loads_of(const struct plan *plan, const struct kernel *row, bool *layers)
{
    enum kernel_load loads = 0;
    memset(layers, 0, (size_t)plan->model->config.layers + 1);
    for (int i = 0; i < plan->model->op_count; i++)
        for (int load = 0; load < KERNEL_LOADS && !plan->ops[i].left_out; load++)
            for (int j = 0; j < LINEAR_OUTPUTS_MAX && !plan->ops[i].fused[load]; j++)
                if (plan->ops[i].rows[load][j] == row) {
                    loads |= 1 << load;
                    layers[plan->model->ops[i].layer + 1] = true;
                }
    return loads;
}

// Whether a row does an op for which it is slow.
static bool is_slow(const struct plan *plan, const struct kernel *row)
{
    for (int i = 0; i < plan->model->op_count && row->slow && row->device == plan->device.kind; i++) {
        const struct op *op = &plan->model->ops[i];
        uint64_t formats = 0;
        if (op->kind != row->op || !has_row(&plan->ops[i], row))
            continue;
        if (op->kind == OP_ATTENTION) {
            const struct kv_layout *layout = &explain_class_of(plan, op->layer)->layout;
            formats = (uint64_t)1 << layout->k.dtype | (uint64_t)1 << layout->v.dtype;
        }
        if (!row->slow_kv || row->slow_kv & formats)
            return true;
    }
    return false;
}

// "1-8", "9+" or "any".
static void add_loads(struct strbuf *out, enum kernel_load loads)
{
    int least = kernel_loads_least(loads), most = kernel_loads_most(loads);
    if (most == INT32_MAX && least == 1)
        strbuf_add_text(out, "any");
    else if (most == INT32_MAX)
        strbuf_add_format(out, "%d+", least);
    else
        strbuf_add_format(out, least == most ? "%d" : "%d-%d", least, most);
}

static bool is_marked(const void *layers, int layer) { return ((const bool *)layers)[layer]; }

static json_t *json_of_functions(const struct kernel *row)
{
    json_t *list = json_array();
    for (int i = 0; i < KERNEL_FUNCTIONS_MAX && row->functions[i]; i++)
        json_array_append_new(list, json_string(row->functions[i]));
    return list;
}

json_t *explain_json_rows(const struct plan *plan)
{
    struct arena arena = { 0 };
    bool *layers = ARENA_NEW(&arena, bool, plan->model->config.layers + 1);
    json_t *list = json_array();
    for (const struct kernel *row = kernel_next(NULL); row; row = kernel_next(row)) {
        enum kernel_load loads = row->device == plan->device.kind ? loads_of(plan, row, layers) : 0;
        struct strbuf words = { 0 }, where = { 0 };
        if (!loads)
            continue;
        add_loads(&words, loads);
        explain_add_layers(&where, plan->model->config.layers, "", is_marked, layers + 1);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?}", "op", op_word(row->op), "kernel", row->name,
                                        "tokens", strbuf_text(&words), "layers", strbuf_text(&where), "functions",
                                        json_of_functions(row), "slow", is_slow(plan, row) ? row->slow : NULL));
        strbuf_free(&words);
        strbuf_free(&where);
    }
    arena_free(&arena);
    return list;
}

json_t *explain_json_layer_rows(const struct plan *plan, int layer, const enum op_kind *kinds, int count)
{
    json_t *out = json_object();
    for (int i = 0; i < count; i++) {
        int op = explain_op_of(plan, layer, kinds[i]);
        if (op < 0)
            continue;
        struct explain_rows rows = explain_rows_of(plan, op, 0);
        struct run runs[RUNS_MAX];
        int all = runs_of(&rows, runs);
        for (int j = 0; j < all; j++) {
            struct strbuf key = { 0 };
            strbuf_add_text(&key, op_word(kinds[i]));
            if (all > 1) {
                strbuf_add_byte(&key, ' ');
                add_loads(&key, (1 << (runs[j].last + 1)) - (1 << runs[j].first));
            }
            json_object_set_new(out, key.data, json_string(runs[j].row->name));
            strbuf_free(&key);
        }
        if (small_row(&rows))
            json_object_set_new(out, "attention small", json_string(small_row(&rows)->name));
    }
    return out;
}

void explain_add_slow(const struct plan *plan, const char *title, struct strbuf *out)
{
    const char *last = NULL; // rows of a family stand together and say the same
    for (const struct kernel *row = kernel_next(NULL); row; row = kernel_next(row)) {
        if (!is_slow(plan, row) || (last && !strcmp(last, row->slow)))
            continue;
        struct strbuf line = { 0 };
        strbuf_add_format(&line, "%s%s: %s", title, row->name, row->slow);
        add_wrapped(out, line.data);
        strbuf_free(&line);
        last = row->slow;
    }
}
