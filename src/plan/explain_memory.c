// SPDX-License-Identifier: Apache-2.0
// plan/explain_memory.c: where a plan's memory goes, in words: weights by format and what they take once they are
// packed for kernels, the workspace, and the KV cache with its capacity.
#include <string.h>

#include "plan/explain_parts.h"

void explain_add_weight_formats(const struct plan *plan, struct strbuf *out)
{
    size_t by_format[DTYPE_COUNT];
    plan_weights_by_format(plan->model, by_format);
    const char *separator = "";
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (!by_format[i])
            continue;
        strbuf_add_format(out, "%s%s %s", separator, dtype_word((enum dtype)i), explain_size(by_format[i]).text);
        separator = ", ";
    }
}

struct explain_packing explain_packing(const struct plan *plan)
{
    size_t by_format[DTYPE_COUNT], listed = 0;
    plan_weights_by_format(plan->model, by_format);
    for (int i = 0; i < DTYPE_COUNT; i++)
        listed += by_format[i];
    int64_t layout = (int64_t)plan->weight_bytes - (int64_t)plan->copied_bytes - (int64_t)listed;
    return (struct explain_packing){ listed, plan->copied_bytes, layout };
}

// Why weights take other than their formats' bytes in memory; nothing where they do not.
static void add_packing(const struct plan *plan, struct strbuf *out)
{
    struct explain_packing packing = explain_packing(plan);
    struct explain_text listed = explain_size(packing.listed_bytes), all = explain_size(plan->weight_bytes);
    bool saves = packing.layout_bytes < 0;
    if (!strcmp(listed.text, all.text))
        return;
    strbuf_add_format(out, "packed    %s in memory: %s %s in the layout that kernels read", all.text,
                      explain_size((size_t)(saves ? -packing.layout_bytes : packing.layout_bytes)).text,
                      saves ? "less" : "more");
    if (packing.copied_bytes)
        strbuf_add_format(out, ", %s for a second copy of %s", explain_size(packing.copied_bytes).text,
                          plan->copied_name);
    if (packing.copied_bytes && plan->copied_count > 1)
        strbuf_add_format(out, " and %d more", plan->copied_count - 1);
    strbuf_add_byte(out, '\n');
}

void explain_add_lengths(const struct plan *plan, struct strbuf *out)
{
    strbuf_add_format(out, "context length %d tokens", plan->max_model_len);
    if (plan->length_note)
        strbuf_add_format(out, " (%s)", plan->length_note);
    strbuf_add_format(out, ", cache capacity %zu tokens", plan_cache_tokens(plan));
}

static void add_pools(const struct plan *plan, struct strbuf *out)
{
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        strbuf_add_format(out, "pool %d    %d layers, %d %s of %s%s\n", i, class->layers, class->pages,
                          class->kind.state ? "states" : "pages", explain_size(class->page_bytes).text,
                          class->kind.end ? ", sink pages" : "");
    }
}

void explain_add_memory(const struct plan *plan, struct strbuf *out)
{
    strbuf_add_format(out, "weights   %s: ", explain_size(explain_packing(plan).listed_bytes).text);
    explain_add_weight_formats(plan, out);
    strbuf_add_byte(out, '\n');
    add_packing(plan, out);
    strbuf_add_format(out,
                      "memory    weights %s, workspace %s, KV cache %s\ncache     %zu bytes per token (all layers), ",
                      explain_size(plan->weight_bytes).text, explain_size(plan->workspace_bytes).text,
                      explain_size(plan->pool_bytes).text, plan_token_bytes(plan));
    explain_add_lengths(plan, out);
    strbuf_add_format(out, " (%.4g x the context length)\n", plan->concurrency);
    add_pools(plan, out);
}
