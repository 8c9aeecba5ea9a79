// SPDX-License-Identifier: Apache-2.0
// plan/explain_json.c: a plan, or its refusal, for programs.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/images.h"
#include "kernel/cuda/sample.h"
#include "plan/cost.h"
#include "plan/explain_parts.h"

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
            strbuf_add_format(&layers, reasons[i].first_layer < reasons[i].last_layer ? "%d-%d" : "%d",
                              reasons[i].first_layer, reasons[i].last_layer);
        json_t *entry = json_pack("{s:s, s:s, s:s, s:i, s:o}", "layers", strbuf_text(&layers), "op",
                                  op_word(reasons[i].kernel->op), "kernel", reasons[i].kernel->name, "priority",
                                  reasons[i].kernel->priority, "reasons", json_of_reason_text(reasons[i].text));
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

static json_t *json_of_model(const struct plan *plan)
{
    const struct model_config *config = &plan->model->config;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "layers", config->layers, "heads", config->heads,
                     "kv_heads", config->kv_heads, "head_size", config->head_dim, "latent", config->latent,
                     "vocabulary", config->vocabulary, "context", config->context);
}

// The -Dcuda-archs that would give this build code for an imagined GPU; NULL where it has some, or needs none.
static const char *missing_code(const struct device *device, struct strbuf *out)
{
    if (device->kind != DEVICE_CUDA || !device->imagined || cuda_has_code(device->sm))
        return NULL;
    strbuf_add_format(out, "%d%s", device->sm, cuda_is_listed(cuda_wgmma_architectures, device->sm) ? "a" : "");
    return out->data;
}

static json_t *json_of_device(const struct plan *plan)
{
    const struct device *device = &plan->device;
    struct arena arena = { 0 };
    struct strbuf code = { 0 };
    bool gpu = device->kind == DEVICE_CUDA;
    json_t *out = json_pack("{s:b, s:s, s:s, s:i, s:I, s:s?, s:s, s:s?}", "imagined", device->imagined, "name",
                            device->name, "unit", gpu ? "multiprocessors" : "cores", "units",
                            gpu ? device->multiprocessors : device->cores, "memory", (json_int_t)device->memory_bytes,
                            "features",
                            device->kind == DEVICE_CPU ? device_feature_words(&arena, device->features) : NULL, "note",
                            device->note, "missing_code", missing_code(device, &code));
    strbuf_free(&code);
    arena_free(&arena);
    return out;
}

static json_t *json_of_next(const struct plan *plan)
{
    const struct plan_next *next = &plan->next;
    return !next->value ? json_null()
                        : json_pack("{s:[s, s], s:f, s:f}", "flags", next->flag, next->value, "tokens_factor",
                                    next->factor, "divergence", next->divergence);
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
        json_array_append_new(layers, explain_json_layer(plan, i));
    json_t *root = json_pack(
        "{s:b, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s?, s:o}", "accepted", true,
        "device", plan->device.word, "architecture", plan->model->config.architecture, "servable",
        !plan->model->imagined, "model", json_of_model(plan), "hardware", json_of_device(plan), "layers", layers,
        "bindings", explain_json_bindings(plan), "kernels", explain_json_rows(plan), "fused", explain_json_fused(plan),
        "slow", explain_json_slow(plan), "weights", explain_json_weights(plan), "memory", explain_json_memory(plan),
        "passed_over", json_of_reasons(plan->reasons, plan->reason_count), "checkpoint", explain_json_checkpoint(plan),
        "failed", plan->failed_note, "next", json_of_next(plan));
    if (plan->model->config.experts.count)
        json_object_set_new(root, "experts", json_of_experts(plan));
    if (plan->device.kind == DEVICE_CUDA)
        json_object_set_new(root, "sampling", json_of_sampling(plan));
    if (plan->model->shard.ranks)
        json_object_set_new(root, "ranks", explain_json_ranks(plan));
    return root;
}

json_t *explain_root(const struct plan *plan)
{
    return plan->refusal.flag ? json_of_refusal(plan) : json_of_acceptance(plan);
}

void explain_json(const struct plan *plan, struct strbuf *out)
{
    json_t *root = explain_root(plan);
    char *text = json_dumps(root, JSON_INDENT(2));
    strbuf_add_format(out, "%s\n", text);
    free(text);
    json_decref(root);
}
