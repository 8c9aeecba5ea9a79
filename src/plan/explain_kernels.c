// SPDX-License-Identifier: Apache-2.0
// plan/explain_kernels.c: the rows of the kernel table that ops are bound to, as JSON.
#include <string.h>

#include "plan/explain_parts.h"

// The rows of a matrix, or of an op without one, by load.
struct rows {
    const struct kernel *row[KERNEL_LOADS];
};

static int op_of(const struct plan *plan, int layer, enum op_kind kind)
{
    for (int i = 0; i < plan->model->op_count; i++)
        if (plan->model->ops[i].layer == layer && plan->model->ops[i].kind == kind)
            return i;
    return -1;
}

// Loads whose op is fused into a neighbour's kernel have no row.
static struct rows rows_of(const struct plan *plan, int op, int matrix)
{
    struct rows rows = { 0 };
    for (int load = 0; load < KERNEL_LOADS; load++)
        if (!plan->ops[op].fused[load])
            rows.row[load] = plan->ops[op].rows[load][matrix];
    return rows;
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

// ---- ops that have the same rows ----

static bool has_small_row(const struct rows *rows)
{
    const struct kernel *small = rows->row[KERNEL_LOAD_SMALL];
    return small && small != rows->row[0];
}

// Neighbouring loads with the same row are one entry. Small decode steps are beside the others.
static json_t *json_of_loads(const struct rows *rows)
{
    json_t *list = json_array();
    for (int first = 0, last; first < KERNEL_LOAD_SMALL; first = last + 1) {
        struct strbuf tokens = { 0 };
        last = first;
        while (last + 1 < KERNEL_LOAD_SMALL && rows->row[last + 1] == rows->row[first])
            last++;
        add_loads(&tokens, (1 << (last + 1)) - (1 << first));
        json_array_append_new(list,
                              json_pack("{s:s, s:s?}", "tokens", tokens.data, "kernel",
                                        rows->row[first] ? rows->row[first]->name : NULL));
        strbuf_free(&tokens);
        if (!first && has_small_row(rows))
            json_array_append_new(
                list, json_pack("{s:s, s:s}", "tokens", "small", "kernel", rows->row[KERNEL_LOAD_SMALL]->name));
    }
    return list;
}

struct binding {
    enum op_kind op;
    struct rows rows;
    uint64_t weights; // formats of its matrices
    bool *layers;
};

static struct binding *find_binding(struct binding *list, int count, enum op_kind op, const struct rows *rows)
{
    for (int i = 0; i < count; i++)
        if (list[i].op == op && !memcmp(&list[i].rows, rows, sizeof *rows))
            return &list[i];
    return NULL;
}

static void bind_op(const struct plan *plan, int index, struct binding *list, int *count)
{
    const struct op *op = &plan->model->ops[index];
    for (int j = 0; j < (op->matrices ? op->matrices : 1); j++) {
        struct rows rows = rows_of(plan, index, j);
        struct binding *found = find_binding(list, *count, op->kind, &rows);
        if (!found) {
            found = &list[(*count)++];
            found->op = op->kind;
            found->rows = rows;
        }
        found->weights |= op->matrices ? (uint64_t)1 << op->matrix[j].tensor->dtype : 0;
        if (op->layer >= 0)
            found->layers[op->layer] = true;
    }
}

json_t *explain_json_bindings(const struct plan *plan)
{
    struct arena arena = { 0 };
    int count = 0, layers = plan->model->config.layers, most = plan->model->op_count * LINEAR_OUTPUTS_MAX;
    struct binding *list = ARENA_NEW(&arena, struct binding, most);
    bool *marks = ARENA_NEW(&arena, bool, most *layers);
    json_t *out = json_array();
    for (int i = 0; i < most; i++)
        list[i].layers = marks + i * layers;
    for (int i = 0; i < plan->model->op_count; i++)
        if (!plan->ops[i].left_out)
            bind_op(plan, i, list, &count);
    for (int i = 0; i < count; i++) {
        struct strbuf where = { 0 };
        int bound = 0;
        for (int layer = 0; layer < layers; layer++)
            bound += list[i].layers[layer];
        plan_add_layers(&where, list[i].layers, layers);
        json_array_append_new(
            out,
            json_pack("{s:s, s:s, s:i, s:o, s:o}", "op", op_word(list[i].op), "layers", strbuf_text(&where),
                      "layer_count", bound, "weights", explain_json_formats(list[i].weights), "kernels",
                      json_of_loads(&list[i].rows)));
        strbuf_free(&where);
    }
    arena_free(&arena);
    return out;
}

json_t *explain_json_layer_rows(const struct plan *plan, int layer, const enum op_kind *kinds, int count)
{
    json_t *out = json_object();
    for (int i = 0; i < count; i++) {
        int op = op_of(plan, layer, kinds[i]);
        if (op < 0)
            continue;
        struct rows rows = rows_of(plan, op, 0);
        json_t *loads = json_of_loads(&rows), *load;
        size_t at;
        json_array_foreach (loads, at, load) {
            struct strbuf key = { 0 };
            strbuf_add_text(&key, op_word(kinds[i]));
            if (json_array_size(loads) > 1)
                strbuf_add_format(&key, " %s", explain_string(load, "tokens"));
            json_object_set(out, key.data, json_object_get(load, "kernel"));
            strbuf_free(&key);
        }
        json_decref(loads);
    }
    return out;
}

// Ops that are fused into a neighbour's kernel, in decode and in prefill steps.
json_t *explain_json_fused(const struct plan *plan)
{
    static const struct {
        const char *word;
        enum kernel_load loads;
    } kinds[] = { { "decode", KERNEL_DECODE }, { "prefill", KERNEL_PREFILL } };
    json_t *out = json_object();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        json_t *words = json_array();
        bool listed[OP_COUNT] = { 0 };
        for (int i = 0; i < plan->model->op_count; i++)
            for (int load = 0; load < KERNEL_LOADS; load++) {
                enum op_kind op = plan->model->ops[i].kind;
                if (!(kinds[k].loads >> load & 1) || !plan->ops[i].fused[load] || listed[op])
                    continue;
                listed[op] = true;
                json_array_append_new(words, json_string(op_word(op)));
            }
        json_object_set_new(out, kinds[k].word, words);
    }
    return out;
}

// ---- all rows ----

// Where a row is bound: its loads, and the layers of those ops, [0] for ops outside the layers.
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

static bool has_row(const struct plan_op *bound, const struct kernel *row)
{
    for (int load = 0; load < KERNEL_LOADS && !bound->left_out; load++)
        for (int i = 0; i < LINEAR_OUTPUTS_MAX && !bound->fused[load]; i++)
            if (bound->rows[load][i] == row)
                return true;
    return false;
}

// Whether a row does an op for which it is slow.
static bool is_slow(const struct plan *plan, const struct kernel *row)
{
    for (int i = 0; i < plan->model->op_count && row->slow; i++) {
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
    int count = plan->model->config.layers;
    bool *layers = ARENA_NEW(&arena, bool, count + 1);
    json_t *list = json_array();
    for (const struct kernel *row = kernel_next(NULL); row; row = kernel_next(row)) {
        enum kernel_load loads = row->device == plan->device.kind ? loads_of(plan, row, layers) : 0;
        struct strbuf tokens = { 0 }, where = { 0 };
        if (!loads)
            continue;
        add_loads(&tokens, loads);
        plan_add_layers(&where, layers + 1, count);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?}", "op", op_word(row->op), "kernel", row->name,
                                        "tokens", tokens.data, "layers", strbuf_text(&where), "functions",
                                        json_of_functions(row), "slow", is_slow(plan, row) ? row->slow : NULL));
        strbuf_free(&tokens);
        strbuf_free(&where);
    }
    arena_free(&arena);
    return list;
}

// Rows of a family stand together and say the same: once is enough.
json_t *explain_json_slow(const struct plan *plan)
{
    json_t *list = json_array();
    const char *last = NULL;
    for (const struct kernel *row = kernel_next(NULL); row; row = kernel_next(row)) {
        if (row->device != plan->device.kind || !is_slow(plan, row) || (last && !strcmp(last, row->slow)))
            continue;
        json_array_append_new(list, json_sprintf("%s: %s", row->name, row->slow));
        last = row->slow;
    }
    return list;
}
