// SPDX-License-Identifier: Apache-2.0
// plan/explain_memory.c: where a plan's memory goes, as JSON: weights by format and what they take once they are packed
// for kernels, the workspace, and the KV cache with what a context costs.
#include "plan/explain_parts.h"

json_t *explain_json_formats(uint64_t formats)
{
    json_t *words = json_array();
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (formats >> i & 1)
            json_array_append_new(words, json_string(dtype_word((enum dtype)i)));
    return words;
}

// ---- weights ----

enum rounding { INT16_ACTIVATIONS, INT8_ACTIVATIONS, NVFP4_ACTIVATIONS, DEQUANTISED };

static uint64_t rounded(const struct kernel *kernel, enum rounding rounding)
{
    return rounding == INT16_ACTIVATIONS ? kernel->int16
        : rounding == INT8_ACTIVATIONS   ? kernel->int8
        : rounding == NVFP4_ACTIVATIONS  ? kernel->nvfp4
                                         : kernel->dequantised;
}

// Formats of the weights for which their kernels round activations, or dequantise.
static json_t *json_of_rounded(const struct plan *plan, enum rounding rounding)
{
    uint64_t formats = 0;
    for (int i = 0; i < plan->model->op_count; i++)
        for (int j = 0; j < plan->model->ops[i].matrices; j++)
            formats |= rounded(plan->ops[i].rows[0][j], rounding)
                & (uint64_t)1 << plan->model->ops[i].matrix[j].tensor->dtype;
    return explain_json_formats(formats);
}

// `bytes` are those in memory: of all formats, and what layouts and second copies add.
json_t *explain_json_weights(const struct plan *plan)
{
    size_t by_format[DTYPE_COUNT], listed = 0;
    json_t *formats = json_object();
    plan_weights_by_format(plan->model, by_format);
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (by_format[i]) {
            json_object_set_new(formats, dtype_word((enum dtype)i), json_integer((json_int_t)by_format[i]));
            listed += by_format[i];
        }
    json_int_t layout = (json_int_t)plan->weight_bytes - (json_int_t)plan->copied_bytes - (json_int_t)listed;
    return json_pack("{s:I, s:o, s:I, s:I, s:I, s:i, s:s?, s:o, s:o, s:o, s:o, s:o}", "bytes",
                     (json_int_t)plan->weight_bytes, "by_format", formats, "listed_bytes", (json_int_t)listed,
                     "layout_bytes", layout, "copied_bytes", (json_int_t)plan->copied_bytes, "copied_count",
                     plan->copied_count, "copied_first", plan->copied_bytes ? plan->copied_name : NULL, "stored",
                     explain_json_stored(plan), "int16_activations", json_of_rounded(plan, INT16_ACTIVATIONS),
                     "int8_activations", json_of_rounded(plan, INT8_ACTIVATIONS), "nvfp4_activations",
                     json_of_rounded(plan, NVFP4_ACTIVATIONS), "dequantised", json_of_rounded(plan, DEQUANTISED));
}

// ---- memory ----

static json_t *json_of_pools(const struct plan *plan)
{
    json_t *pools = json_array();
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        const struct kv_layout *layout = &class->layout;
        struct strbuf name = { 0 };
        explain_attention(&name, class);
        strbuf_add_format(&name, " %s", class->kind.state ? dtype_word(DTYPE_F32) : dtype_word(layout->k.dtype));
        if (!class->kind.state && layout->v.dtype != layout->k.dtype)
            strbuf_add_format(&name, "/%s", dtype_word(layout->v.dtype));
        strbuf_add_text(&name, class->kind.end ? " sink pages" : "");
        json_array_append_new(pools,
                              json_pack("{s:s, s:i, s:b, s:I, s:i, s:i}", "class", name.data, "layers", class->layers,
                                        "state", class->kind.state, "page_bytes", (json_int_t)class->page_bytes,
                                        "pages", class->pages, "page_tokens", class->kind.page_tokens));
        strbuf_free(&name);
    }
    return pools;
}

static json_t *json_of_cost(const struct plan *plan, int tokens)
{
    struct plan_sequence_cost cost = plan_sequence_cost(plan, tokens);
    return json_pack("{s:i, s:I, s:I, s:I}", "tokens", tokens, "k", (json_int_t)cost.k_bytes, "v",
                     (json_int_t)cost.v_bytes, "state", (json_int_t)cost.state_bytes);
}

static json_t *json_of_costs(const struct plan *plan)
{
    enum { EXAMPLE_TOKENS = 1000 };
    json_t *costs = json_array();
    if (plan->max_model_len > EXAMPLE_TOKENS)
        json_array_append_new(costs, json_of_cost(plan, EXAMPLE_TOKENS));
    json_array_append_new(costs, json_of_cost(plan, plan->max_model_len));
    return costs;
}

json_t *explain_json_memory(const struct plan *plan)
{
    return json_pack("{s:I, s:I, s:I, s:i, s:o, s:I, s:I, s:f, s:i, s:s?, s:o, s:s, s:s?}", "weights",
                     (json_int_t)plan->weight_bytes, "workspace", (json_int_t)plan->workspace_bytes, "cache",
                     (json_int_t)plan->pool_bytes, "page_tokens", KV_PAGE_TOKENS, "pools", json_of_pools(plan),
                     "bytes_per_token", (json_int_t)plan_token_bytes(plan), "tokens",
                     (json_int_t)plan_cache_tokens(plan), "max_concurrency", plan->concurrency, "context_length",
                     plan->max_model_len, "length_note", plan->length_note, "sequence", json_of_costs(plan),
                     "sink_dtype", dtype_word(plan->model->config.kv_dtype), "sink_note", plan->sink_note);
}
