// SPDX-License-Identifier: Apache-2.0
// plan/explain_json.c: a plan, or its refusal, for programs.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/sample.h"
#include "plan/cost.h"
#include "plan/explain.h"
#include "plan/explain_parts.h"

// Bits of the cache per number, scales included.
static double side_bits(const struct kv_side *side)
{
    return 8.0 * (double)(side->data_bytes + side->scale_bytes) / side->dim;
}

static json_t *json_of_layer(const struct plan *plan, int index)
{
    const struct plan_class *class = explain_class_of(plan, index);
    static const enum op_kind kinds[] = { OP_ATTENTION, OP_KV_WRITE, OP_LINEAR };
    const struct kv_side *k = &class->layout.k, *v = &class->layout.v;
    bool latent = class->layout.latent; // then V takes no bits of its own
    json_t *layer = json_pack("{s:i, s:s, s:o, s:s, s:s, s:f, s:f, s:s, s:I, s:o}", "index", index, "attention",
                              latent                   ? "mla"
                                  : class->kind.window ? "window"
                                                       : "full",
                              "window", class->kind.window ? json_integer(class->kind.window) : json_null(), "k",
                              dtype_word(k->dtype), "v", dtype_word(v->dtype), "k_bits", side_bits(k), "v_bits",
                              latent ? 0.0 : side_bits(v), "transform", explain_transform(plan, index),
                              "bytes_per_token", (json_int_t)plan_layer_token_bytes(plan, index), "kernels",
                              explain_json_layer_rows(plan, index, kinds, sizeof kinds / sizeof *kinds));
    const char *scale = explain_scale(plan, index);
    json_object_set_new(layer, "scale", scale ? json_string(scale) : json_null());
    json_object_set_new(layer, "transform_errors", explain_json_errors(plan, index));
    json_object_set_new(layer, "sink_pages", json_integer(explain_sink_pages(plan, index)));
    if (latent)
        json_object_set_new(layer, "latent", json_pack("[i, i]", v->dim, k->dim - v->dim));
    return layer;
}

static json_t *json_of_memory(const struct plan *plan)
{
    json_t *pools = json_array();
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        struct strbuf name = { 0 };
        explain_add_attention(&name, class);
        strbuf_add_byte(&name, ' ');
        if (class->kind.state)
            strbuf_add_text(&name, dtype_word(DTYPE_F32));
        else
            explain_add_formats(&name, &class->layout);
        if (class->kind.end)
            strbuf_add_text(&name, " sink pages");
        json_array_append_new(
            pools,
            json_pack("{s:s, s:I, s:i, s:i}", "class", name.data, "page_bytes", (json_int_t)class->page_bytes, "pages",
                      class->pages, "page_tokens", class->kind.page_tokens));
        strbuf_free(&name);
    }
    return json_pack("{s:I, s:I, s:i, s:o, s:I, s:f}", "weights", (json_int_t)plan->weight_bytes, "workspace",
                     (json_int_t)plan->workspace_bytes, "page_tokens", KV_PAGE_TOKENS, "pools", pools, "tokens",
                     (json_int_t)plan_cache_tokens(plan), "max_concurrency", plan->concurrency);
}

// "a; b" as a list.
static json_t *json_of_reason_text(const char *text)
{
    json_t *list = json_array();
    for (const char *end; *text; text = *end ? end + 2 : end) {
        end = strstr(text, "; ");
        end = end ? end : text + strlen(text);
        json_array_append_new(list, json_stringn(text, (size_t)(end - text)));
    }
    return list;
}

static json_t *json_of_reasons(const struct plan_reason *reasons, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        struct strbuf layers = { 0 };
        if (reasons[i].first_layer >= 0)
            explain_add_range(&layers, reasons[i].first_layer, reasons[i].last_layer);
        json_t *entry = json_pack("{s:s, s:s, s:s, s:o}", "layers", strbuf_text(&layers), "op",
                                  op_word(reasons[i].kernel->op), "kernel", reasons[i].kernel->name, "reasons",
                                  json_of_reason_text(reasons[i].text));
        json_array_append_new(list, entry);
        strbuf_free(&layers);
    }
    return list;
}

// "0-2, 5" as [0, 1, 2, 5]
static json_t *json_of_layer_list(const char *text)
{
    json_t *list = json_array();
    while (*text) {
        char *end;
        long first = strtol(text, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (; first <= last; first++)
            json_array_append_new(list, json_integer(first));
        text = end + strspn(end, ", ");
    }
    return list;
}

static json_t *json_of_refusal(const struct plan *plan)
{
    const struct plan_refusal *refusal = &plan->refusal;
    json_t *alternatives = json_array();
    for (int i = 0; i < refusal->alternative_count; i++) {
        const struct plan_alternative *found = &refusal->alternatives[i];
        json_array_append_new(alternatives,
                              json_pack("{s:[s, s], s:I}", "flags", found->flag, found->value, "bytes_per_token",
                                        (json_int_t)found->token_bytes));
    }
    return json_pack("{s:b, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "accepted", false, "flag", refusal->flag, "value",
                     refusal->value, "device", plan->device.word, "reason", refusal->reason, "layers",
                     json_of_layer_list(refusal->layers), "candidates",
                     json_of_reasons(refusal->candidates, refusal->candidate_count), "alternatives", alternatives);
}

static json_t *json_of_experts(const struct plan *plan)
{
    const struct model_experts *experts = &plan->model->config.experts;
    double bytes = plan_experts_bytes(plan);
    return json_pack("{s:i, s:i, s:I, s:I}", "count", experts->count, "top_k", experts->top_k, "bytes",
                     (json_int_t)bytes, "bytes_per_token", (json_int_t)(bytes * experts->top_k / experts->count));
}

// Words of the formats in a set.
static json_t *json_of_formats(uint64_t formats)
{
    json_t *words = json_array();
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (formats >> i & 1)
            json_array_append_new(words, json_string(dtype_word((enum dtype)i)));
    return words;
}

// Their bytes in memory are those of all formats and what layouts and second copies add.
static json_t *json_of_weights(const struct plan *plan)
{
    size_t by_format[DTYPE_COUNT];
    struct explain_packing packing = explain_packing(plan);
    json_t *formats = json_object();
    plan_weights_by_format(plan->model, by_format);
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (by_format[i])
            json_object_set_new(formats, dtype_word((enum dtype)i), json_integer((json_int_t)by_format[i]));
    return json_pack("{s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "bytes", (json_int_t)plan->weight_bytes,
                     "by_format", formats, "layout_bytes", (json_int_t)packing.layout_bytes, "copied_bytes",
                     (json_int_t)packing.copied_bytes, "stored", explain_json_stored(plan), "int16_activations",
                     json_of_formats(explain_weights(plan, NULL, EXPLAIN_INT16)), "int8_activations",
                     json_of_formats(explain_weights(plan, NULL, EXPLAIN_INT8)), "nvfp4_activations",
                     json_of_formats(explain_weights(plan, NULL, EXPLAIN_NVFP4)), "dequantised",
                     json_of_formats(explain_weights(plan, NULL, EXPLAIN_UNPACKED)));
}

// The functions that draw tokens on a GPU, which are no op's.
static json_t *json_of_sampling(const struct plan *plan)
{
    json_t *list = json_array();
    for (int i = 0; i < CUDA_SAMPLING_CALLS && cuda_sampling_fits(plan->model->config.vocabulary); i++)
        json_array_append_new(list, json_string(cuda_sampling_functions[i]));
    return list;
}

static json_t *json_of_acceptance(const struct plan *plan)
{
    json_t *layers = json_array();
    for (int i = 0; i < plan->model->config.layers; i++)
        json_array_append_new(
            layers,
            plan->model->layer[i].kind == LAYER_ATTENTION ? json_of_layer(plan, i) : explain_json_recurrent(plan, i));
    json_t *root = json_pack(
        "{s:b, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "accepted", true, "device", plan->device.word,
        "architecture", plan->model->config.architecture, "servable", !plan->model->imagined, "layers", layers,
        "kernels", explain_json_rows(plan), "weights", json_of_weights(plan), "memory", json_of_memory(plan),
        "passed_over", json_of_reasons(plan->reasons, plan->reason_count), "checkpoint", explain_json_checkpoint(plan));
    if (plan->model->config.experts.count)
        json_object_set_new(root, "experts", json_of_experts(plan));
    if (plan->device.kind == DEVICE_CUDA)
        json_object_set_new(root, "sampling", json_of_sampling(plan));
    if (plan->model->shard.ranks)
        json_object_set_new(root, "ranks", explain_json_ranks(plan));
    return root;
}

void explain_json(const struct plan *plan, struct strbuf *out)
{
    json_t *root = plan->refusal.flag ? json_of_refusal(plan) : json_of_acceptance(plan);
    char *text = json_dumps(root, JSON_INDENT(2));
    strbuf_add_format(out, "%s\n", text);
    free(text);
    json_decref(root);
}
