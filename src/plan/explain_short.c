// SPDX-License-Identifier: Apache-2.0
// plan/explain_short.c: a plan in one line, for the start of run and serve, with its warnings on lines of their own.
#include <string.h>

#include "plan/explain_parts.h"

// "nvfp4", or "fp8_e4m3/nvfp4" where K and V differ; "" for a layer without attention.
static void add_formats(struct strbuf *out, const json_t *layer)
{
    const char *k = explain_string(layer, "k"), *v = explain_string(layer, "v");
    strbuf_add_format(out, strcmp(k, v) ? "%s/%s" : "%s", k, v);
}

static bool has_formats_of(const json_t *layer, const json_t *other)
{
    return json_equal(json_object_get(layer, "k"), json_object_get(other, "k"))
        && json_equal(json_object_get(layer, "v"), json_object_get(other, "v"));
}

// The next layer with attention, or how many layers there are.
static size_t next_attention(const json_t *layers, size_t layer)
{
    while (layer < json_array_size(layers) && !json_is_string(json_object_get(json_array_get(layers, layer), "k")))
        layer++;
    return layer;
}

// "nvfp4" when all layers with attention have the same formats, else "0-3:bfloat16, 4-29:fp8_e4m3/nvfp4".
static void add_formats_by_layer(struct strbuf *out, const json_t *layers)
{
    size_t count = json_array_size(layers), start = next_attention(layers, 0);
    strbuf_add_text(out, start == count ? "of states alone" : "");
    for (size_t first = start, after; first < count; first = after) {
        const json_t *layer = json_array_get(layers, first);
        size_t last = first;
        for (after = next_attention(layers, first + 1);
             after < count && has_formats_of(layer, json_array_get(layers, after));
             after = next_attention(layers, after + 1))
            last = after;
        strbuf_add_text(out, first > start ? ", " : "");
        if (first > start || after < count)
            strbuf_add_format(out, first < last ? "%zu-%zu:" : "%zu:", first, last);
        add_formats(out, layer);
    }
}

static void add_transforms(struct strbuf *out, const json_t *layers)
{
    int all = 0, transformed = 0;
    size_t i;
    const json_t *layer;
    json_array_foreach (layers, i, layer) {
        const char *word = explain_string(layer, "transform");
        all += json_is_string(json_object_get(layer, "k"));
        transformed += strcmp(word, "none") && strcmp(word, "auto");
    }
    if (transformed)
        strbuf_add_format(out, " (keys transformed in %d of %d layers)", transformed, all);
}

static void add_states(struct strbuf *out, const json_t *memory)
{
    size_t i;
    const json_t *pool;
    json_array_foreach (json_object_get(memory, "pools"), i, pool)
        if (json_is_true(json_object_get(pool, "state"))) {
            strbuf_add_text(out, " and states of ");
            explain_add_size(out, (double)explain_number(pool, "page_bytes"));
            strbuf_add_text(out, " per sequence");
        }
}

static void add_warnings(struct strbuf *out, const json_t *warnings)
{
    size_t i;
    const json_t *warning;
    json_array_foreach (warnings, i, warning)
        strbuf_add_format(out, "warning: %s\n", json_string_value(warning));
}

void explain_short(const struct plan *plan, struct strbuf *out)
{
    json_t *root = explain_root(plan);
    const json_t *layers = json_object_get(root, "layers"), *memory = json_object_get(root, "memory");
    const json_t *ranks = json_object_get(root, "ranks");
    const char *failed = explain_string(root, "failed");
    strbuf_add_format(out, "plan: %s on %s", explain_string(root, "architecture"), explain_string(root, "device"));
    if (ranks)
        strbuf_add_format(out, ", rank %lld of %lld", explain_number(ranks, "rank"), explain_number(ranks, "count"));
    strbuf_add_text(out, "; KV cache ");
    add_formats_by_layer(out, layers);
    add_transforms(out, layers);
    strbuf_add_format(out, ", %lld bytes per token (all layers)", explain_number(memory, "bytes_per_token"));
    add_states(out, memory);
    strbuf_add_text(out, ", ");
    explain_add_lengths(out, memory);
    strbuf_add_text(out, "; weights ");
    explain_add_weight_formats(out, json_object_get(root, "weights"));
    if (*failed)
        strbuf_add_format(out, "; left out after a failed self-test: %s", failed);
    strbuf_add_byte(out, '\n');
    add_warnings(out, json_object_get(root, "slow"));
    add_warnings(out, json_object_get(json_object_get(root, "checkpoint"), "warnings"));
    json_decref(root);
}
