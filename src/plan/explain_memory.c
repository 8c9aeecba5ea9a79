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
        strbuf_add_format(out, "%s%s ", separator, dtype_word((enum dtype)i));
        explain_add_size(out, by_format[i]);
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

static bool is_shown_alike(size_t a, size_t b)
{
    struct strbuf first = { 0 }, second = { 0 };
    explain_add_size(&first, a);
    explain_add_size(&second, b);
    bool alike = !strcmp(first.data, second.data);
    strbuf_free(&first);
    strbuf_free(&second);
    return alike;
}

// Why weights take other than their formats' bytes in memory; nothing where they do not.
static void add_packing(const struct plan *plan, struct strbuf *out)
{
    struct explain_packing packing = explain_packing(plan);
    if (is_shown_alike(packing.listed_bytes, plan->weight_bytes))
        return;
    strbuf_add_text(out, "packed    ");
    explain_add_size(out, plan->weight_bytes);
    strbuf_add_text(out, " in memory: ");
    explain_add_size(out, (size_t)(packing.layout_bytes < 0 ? -packing.layout_bytes : packing.layout_bytes));
    strbuf_add_format(out, " %s in the layout that kernels read", packing.layout_bytes < 0 ? "less" : "more");
    if (packing.copied_bytes) {
        strbuf_add_text(out, ", ");
        explain_add_size(out, packing.copied_bytes);
        strbuf_add_format(out, " for a second copy of %s", plan->copied_name);
        if (plan->copied_count > 1)
            strbuf_add_format(out, " and %d more", plan->copied_count - 1);
    }
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
        strbuf_add_format(out, "pool %d    %d layers, %d %s of ", i, class->layers, class->pages,
                          class->kind.state ? "states" : "pages");
        explain_add_size(out, class->page_bytes);
        strbuf_add_text(out, class->kind.end ? ", sink pages\n" : "\n");
    }
}

void explain_add_memory(const struct plan *plan, struct strbuf *out)
{
    strbuf_add_text(out, "weights   ");
    explain_add_size(out, explain_packing(plan).listed_bytes);
    strbuf_add_text(out, ": ");
    explain_add_weight_formats(plan, out);
    strbuf_add_byte(out, '\n');
    add_packing(plan, out);
    strbuf_add_text(out, "memory    weights ");
    explain_add_size(out, plan->weight_bytes);
    strbuf_add_text(out, ", workspace ");
    explain_add_size(out, plan->workspace_bytes);
    strbuf_add_text(out, ", KV cache ");
    explain_add_size(out, plan->pool_bytes);
    strbuf_add_format(out, "\ncache     %zu bytes per token (all layers), ", plan_token_bytes(plan));
    explain_add_lengths(plan, out);
    strbuf_add_format(out, " (%.4g x the context length)\n", plan->concurrency);
    add_pools(plan, out);
}
