// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct plan_class *class_of(const struct plan *plan, int layer)
{
    return &plan->classes[plan->layer[layer].class_index];
}

static const struct plan_op *binding_of(const struct plan *plan, int layer, enum op_kind kind)
{
    for (int i = 0; i < plan->model->op_count; i++)
        if (plan->model->ops[i].layer == layer && plan->model->ops[i].kind == kind)
            return &plan->ops[i];
    return NULL;
}

// Layers that a line may describe together.
static bool same_layers(const struct plan *plan, int a, int b)
{
    const struct plan_op *attention_a = binding_of(plan, a, OP_ATTENTION),
                         *attention_b = binding_of(plan, b, OP_ATTENTION);
    return plan->layer[a].class_index == plan->layer[b].class_index && attention_a->few == attention_b->few
        && attention_a->many == attention_b->many;
}

static int last_of_run(const struct plan *plan, int first)
{
    int last = first;
    while (last + 1 < plan->model->config.layers && same_layers(plan, first, last + 1))
        last++;
    return last;
}

static void add_size(struct strbuf *out, size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units)
        value /= 1024, unit++;
    strbuf_add_format(out, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static void add_range(struct strbuf *out, int first, int last)
{
    strbuf_add_format(out, first == last ? "%d" : "%d-%d", first, last);
}

static void add_formats(struct strbuf *out, const struct kv_layout *layout)
{
    strbuf_add_text(out, dtype_word(layout->k.dtype));
    if (layout->v.dtype != layout->k.dtype)
        strbuf_add_format(out, "/%s", dtype_word(layout->v.dtype));
}

static size_t token_bytes(const struct plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->model->config.layers; i++)
        bytes += plan_layer_token_bytes(plan, i);
    return bytes;
}

static void add_weights(const struct plan *plan, struct strbuf *out)
{
    size_t by_format[DTYPE_COUNT];
    plan_weights_by_format(plan->model, by_format);
    const char *separator = "";
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (!by_format[i])
            continue;
        strbuf_add_format(out, "%s%s ", separator, dtype_word((enum dtype)i));
        add_size(out, by_format[i]);
        separator = ", ";
    }
}

// "nvfp4" when all layers have the same formats, else "0-3:bfloat16, 4-29:fp8_e4m3/nvfp4".
static void add_formats_by_layer(const struct plan *plan, struct strbuf *out)
{
    int layers = plan->model->config.layers;
    for (int first = 0, last; first < layers; first = last + 1) {
        const struct kv_layout *layout = &class_of(plan, first)->layout;
        for (last = first; last + 1 < layers; last++) {
            const struct kv_layout *next = &class_of(plan, last + 1)->layout;
            if (next->k.dtype != layout->k.dtype || next->v.dtype != layout->v.dtype)
                break;
        }
        strbuf_add_text(out, first ? ", " : "");
        if (first || last < layers - 1) {
            add_range(out, first, last);
            strbuf_add_byte(out, ':');
        }
        add_formats(out, layout);
    }
}

void explain_short(const struct plan *plan, struct strbuf *out)
{
    strbuf_add_format(out, "plan: %s on %s; cache ", plan->model->config.architecture, plan->device.word);
    add_formats_by_layer(plan, out);
    strbuf_add_format(out, ", %zu bytes a token, %d tokens", token_bytes(plan), plan->max_model_len);
    if (plan->length_note)
        strbuf_add_format(out, " (%s)", plan->length_note);
    strbuf_add_text(out, "; weights ");
    add_weights(plan, out);
    strbuf_add_byte(out, '\n');
}

static void add_layer_lines(const struct plan *plan, struct strbuf *out)
{
    strbuf_add_format(out, "%-9s %-12s %-20s %-20s %11s  %-16s %s\n", "layers", "attention", "K", "V", "bytes/token",
                      "few tokens", "many tokens");
    for (int first = 0, last; first < plan->model->config.layers; first = last + 1) {
        last = last_of_run(plan, first);
        const struct plan_class *class = class_of(plan, first);
        const struct plan_op *attention = binding_of(plan, first, OP_ATTENTION);
        struct strbuf range = { 0 }, kind = { 0 };
        add_range(&range, first, last);
        strbuf_add_text(&kind, class->window ? "window " : "full");
        if (class->window)
            strbuf_add_format(&kind, "%d", class->window);
        strbuf_add_format(out, "%-9s %-12s %-20s %-20s %11zu  %-16s %s\n", range.data, kind.data,
                          dtype_word(class->layout.k.dtype), dtype_word(class->layout.v.dtype),
                          plan_layer_token_bytes(plan, first), attention->few->name, attention->many->name);
        strbuf_free(&range);
        strbuf_free(&kind);
    }
}

static void add_memory(const struct plan *plan, struct strbuf *out)
{
    strbuf_add_text(out, "memory    weights ");
    add_size(out, plan->weight_bytes);
    strbuf_add_text(out, ", workspace ");
    add_size(out, plan->workspace_bytes);
    strbuf_add_text(out, ", cache ");
    add_size(out, plan->pool_bytes);
    strbuf_add_format(out, " for %d x %d tokens", plan->max_num_seqs, plan->max_model_len);
    if (plan->length_note)
        strbuf_add_format(out, " (%s)", plan->length_note);
    strbuf_add_byte(out, '\n');
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        strbuf_add_format(out, "pool %d    %d layers, %d pages of ", i, class->layers, class->pages);
        add_size(out, class->page_bytes);
        strbuf_add_byte(out, '\n');
    }
}

void explain_full(const struct plan *plan, struct strbuf *out)
{
    const struct model_config *config = &plan->model->config;
    struct arena arena = { 0 };
    strbuf_add_format(out, "model     %s: %d layers, %d heads on %d of %d channels, vocabulary %d, context %d\n",
                      config->architecture, config->layers, config->heads, config->kv_heads, config->head_dim,
                      config->vocabulary, config->context);
    strbuf_add_format(out, "device    %s: %s, %d cores, %s\n", plan->device.word, plan->device.name, plan->device.cores,
                      device_feature_words(&arena, plan->device.features));
    add_layer_lines(plan, out);
    strbuf_add_text(out, "weights   ");
    add_weights(plan, out);
    strbuf_add_byte(out, '\n');
    add_memory(plan, out);
    arena_free(&arena);
}

static json_t *json_of_layer(const struct plan *plan, int index)
{
    const struct plan_class *class = class_of(plan, index);
    const struct plan_op *attention = binding_of(plan, index, OP_ATTENTION),
                         *write = binding_of(plan, index, OP_KV_WRITE);
    return json_pack("{s:i, s:s, s:o, s:s, s:s, s:s, s:I, s:{s:s, s:s, s:s, s:s}}", "index", index, "attention",
                     class->window ? "window" : "full", "window",
                     class->window ? json_integer(class->window) : json_null(), "k", dtype_word(class->layout.k.dtype),
                     "v", dtype_word(class->layout.v.dtype), "transform", "none", "bytes_per_token",
                     (json_int_t)plan_layer_token_bytes(plan, index), "kernels", "attention_few", attention->few->name,
                     "attention_many", attention->many->name, "kv_write", write->few->name, "linear",
                     binding_of(plan, index, OP_LINEAR)->few->name);
}

static json_t *json_of_memory(const struct plan *plan)
{
    json_t *pools = json_array();
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        struct strbuf name = { 0 };
        strbuf_add_format(&name, class->window ? "window %d " : "full ", class->window);
        add_formats(&name, &class->layout);
        json_array_append_new(pools,
                              json_pack("{s:s, s:I, s:i}", "class", name.data, "page_bytes",
                                        (json_int_t) class->page_bytes, "pages", class->pages));
        strbuf_free(&name);
    }
    return json_pack("{s:I, s:I, s:o, s:I, s:f}", "weights", (json_int_t)plan->weight_bytes, "workspace",
                     (json_int_t)plan->workspace_bytes, "pools", pools, "tokens",
                     (json_int_t)plan->max_model_len * plan->max_num_seqs, "max_concurrency",
                     (double)plan->max_num_seqs);
}

static json_t *json_of_reasons(const struct plan *plan)
{
    json_t *list = json_array();
    for (int i = 0; i < plan->reason_count; i++) {
        const struct plan_reason *reason = &plan->reasons[i];
        struct strbuf layers = { 0 };
        if (reason->first_layer >= 0)
            add_range(&layers, reason->first_layer, reason->last_layer);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:[s]}", "layers", strbuf_text(&layers), "op",
                                        op_word(reason->kernel->op), "kernel", reason->kernel->name, "reasons",
                                        reason->text));
        strbuf_free(&layers);
    }
    return list;
}

void explain_json(const struct plan *plan, struct strbuf *out)
{
    size_t by_format[DTYPE_COUNT];
    plan_weights_by_format(plan->model, by_format);
    json_t *layers = json_array(), *formats = json_object();
    for (int i = 0; i < plan->model->config.layers; i++)
        json_array_append_new(layers, json_of_layer(plan, i));
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (by_format[i])
            json_object_set_new(formats, dtype_word((enum dtype)i), json_integer((json_int_t)by_format[i]));
    json_t *root = json_pack("{s:b, s:s, s:s, s:o, s:{s:I, s:o}, s:o, s:o}", "accepted", true, "device",
                             plan->device.word, "architecture", plan->model->config.architecture, "layers", layers,
                             "weights", "bytes", (json_int_t)plan->weight_bytes, "by_format", formats, "memory",
                             json_of_memory(plan), "passed_over", json_of_reasons(plan));
    char *text = json_dumps(root, JSON_INDENT(2));
    strbuf_add_text(out, text);
    strbuf_add_byte(out, '\n');
    free(text);
    json_decref(root);
}
