// SPDX-License-Identifier: Apache-2.0
// plan/explain_text_layers.c: the table of layers, grouped by attention and formats, and how keys and values are
// stored.
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "plan/explain_parts.h"

// Writes what makes a layer one of a group; nothing for a layer that is in none.
typedef void (*name_layer)(struct strbuf *out, const json_t *layer);

// Marks the layers of this one's group. Returns whether it is the first of them.
static bool mark_alike(const json_t *layers, size_t first, name_layer name, bool *marked)
{
    struct strbuf own = { 0 };
    size_t i, least = first;
    const json_t *layer;
    name(&own, json_array_get(layers, first));
    json_array_foreach (layers, i, layer) {
        struct strbuf other = { 0 };
        name(&other, layer);
        marked[i] = own.len && !strcmp(own.data, strbuf_text(&other));
        least = marked[i] && i < least ? i : least;
        strbuf_free(&other);
    }
    bool is_first = own.len && least == first;
    strbuf_free(&own);
    return is_first;
}

// ---- the table ----

// Fewer bits are greener.
static const char *colour_of(const char *format)
{
    enum dtype dtype;
    int bits = dtype_from_kv_word(bytes_of(format), &dtype) ? dtype_table[dtype].bits : 16;
    return bits <= 4 ? "\033[32m" : bits <= 8 ? "\033[33m" : "";
}

enum { LAYERS_WIDTH = 8, ATTENTION_WIDTH = 13, FORMAT_WIDTH = 19 };

// A column, coloured without counting the colour.
static void add_cell(struct explain_page *page, const char *colour, int width, const char *text)
{
    bool coloured = page->style.colour && *colour;
    strbuf_add_format(page->out, "%s%-*s%s ", coloured ? colour : "", width, text, coloured ? "\033[0m" : "");
}

static void add_attention(struct strbuf *out, const json_t *layer)
{
    const json_t *latent = json_object_get(layer, "latent");
    if (latent)
        strbuf_add_format(out, "latent %lld+%lld", json_integer_value(json_array_get(latent, 0)),
                          json_integer_value(json_array_get(latent, 1)));
    else
        strbuf_add_text(out, explain_string(layer, "attention"));
    if (explain_number(layer, "window"))
        strbuf_add_format(out, " %lld", explain_number(layer, "window"));
}

// Empty for layers without attention, which are no rows of the table.
static void name_row(struct strbuf *out, const json_t *layer)
{
    if (!json_is_string(json_object_get(layer, "k")))
        return;
    add_attention(out, layer);
    strbuf_add_format(out, " %s %s %lld", explain_string(layer, "k"), explain_string(layer, "v"),
                      explain_number(layer, "bytes_per_token"));
}

// Layers that do not fit into their column are counted there and listed below.
static void add_row(struct explain_page *page, const json_t *layer, const bool *marked, int count)
{
    struct strbuf layers = { 0 }, attention = { 0 };
    int all = 0;
    for (int i = 0; i < count; i++)
        all += marked[i];
    plan_add_layers(&layers, marked, count);
    add_attention(&attention, layer);
    bool fits = layers.len <= LAYERS_WIDTH;
    char counted[16];
    snprintf(counted, sizeof counted, "%d of %d", all, count);
    const char *k = explain_string(layer, "k"), *v = explain_string(layer, "v");
    bool latent = json_object_get(layer, "latent");
    add_cell(page, "", LAYERS_WIDTH, fits ? layers.data : counted);
    add_cell(page, "", ATTENTION_WIDTH, attention.data);
    add_cell(page, colour_of(k), FORMAT_WIDTH, k);
    add_cell(page, latent ? "" : colour_of(v), FORMAT_WIDTH, latent ? "in K" : v);
    strbuf_add_format(page->out, "%lld\n", explain_number(layer, "bytes_per_token"));
    if (!fits)
        explain_add_line(page, "", &layers);
    strbuf_free(&layers);
    strbuf_free(&attention);
}

static void add_table(struct explain_page *page, const json_t *layers, bool *marked)
{
    static const struct {
        const char *title;
        int width;
    } columns[] = {
        { "layers", LAYERS_WIDTH }, { "attention", ATTENTION_WIDTH }, { "K", FORMAT_WIDTH }, { "V", FORMAT_WIDTH }
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        add_cell(page, "\033[1m", columns[i].width, columns[i].title);
    strbuf_add_format(page->out, "%s\n", page->style.colour ? "\033[1mbytes/token/layer\033[0m" : "bytes/token/layer");
    size_t i;
    const json_t *layer;
    json_array_foreach (layers, i, layer)
        if (mark_alike(layers, i, name_row, marked))
            add_row(page, layer, marked, (int)json_array_size(layers));
}

static void name_origin(struct strbuf *out, const json_t *layer)
{
    strbuf_add_text(out, explain_string(layer, "format_origin"));
}

// Why layers have their formats.
static void add_origins(struct explain_page *page, const json_t *layers, bool *marked)
{
    struct strbuf line = { 0 };
    size_t i;
    const json_t *layer;
    json_array_foreach (layers, i, layer) {
        if (!mark_alike(layers, i, name_origin, marked))
            continue;
        strbuf_add_format(&line, "%s%s for layers ", line.len ? "; " : "by ", explain_string(layer, "format_origin"));
        plan_add_layers(&line, marked, (int)json_array_size(layers));
    }
    explain_add_line(page, "formats", &line);
}

// ---- layers without attention ----

static void name_kind(struct strbuf *out, const json_t *layer)
{
    if (!json_is_string(json_object_get(layer, "k")))
        strbuf_add_text(out, explain_string(layer, "attention"));
}

static void add_states(struct explain_page *page, struct strbuf *line)
{
    size_t i;
    const json_t *pool;
    json_array_foreach (json_object_get(json_object_get(page->plan, "memory"), "pools"), i, pool)
        if (json_is_true(json_object_get(pool, "state"))) {
            strbuf_add_text(line, ": recurrent, float32, ");
            explain_add_size(line, (double)explain_number(pool, "page_bytes"));
            strbuf_add_format(line, " per sequence, one kept every %lld tokens", explain_number(pool, "page_tokens"));
        }
}

static void add_others(struct explain_page *page, const json_t *layers, bool *marked)
{
    size_t i;
    const json_t *layer;
    json_array_foreach (layers, i, layer) {
        struct strbuf line = { 0 };
        if (!mark_alike(layers, i, name_kind, marked))
            continue;
        bool has_state = explain_number(layer, "state_bytes");
        strbuf_add_text(&line, "layers ");
        plan_add_layers(&line, marked, (int)json_array_size(layers));
        if (has_state)
            add_states(page, &line);
        else
            strbuf_add_text(&line, " have neither KV cache nor state");
        explain_add_line(page, has_state ? "states" : "stateless", &line);
    }
}

// ---- how keys and values are stored ----

static void name_transform(struct strbuf *out, const json_t *layer)
{
    const char *word = explain_string(layer, "transform");
    if (json_is_string(json_object_get(layer, "k")) && strcmp(word, "none"))
        strbuf_add_text(out, word);
}

// The error of attention with the transforms that were chosen, and without any: the mean over layers.
static void add_errors(struct strbuf *out, const json_t *layers)
{
    double with = 0, without = 0;
    int count = 0;
    size_t i;
    const json_t *layer;
    json_array_foreach (layers, i, layer) {
        const json_t *errors = json_object_get(layer, "transform_errors");
        if (!json_object_size(errors))
            continue;
        with += json_real_value(json_object_get(errors, explain_string(layer, "transform")));
        without += json_real_value(json_object_get(errors, "none"));
        count++;
    }
    if (out->len && count)
        strbuf_add_format(out, "; measured attention error %.2g (%.2g untransformed)", with / count, without / count);
}

static void add_transforms(struct explain_page *page, const json_t *layers, bool *marked)
{
    struct strbuf chosen = { 0 }, undecided = { 0 };
    size_t i;
    const json_t *layer;
    json_array_foreach (layers, i, layer) {
        const char *word = explain_string(layer, "transform");
        bool decided = strcmp(word, "auto");
        struct strbuf *line = decided ? &chosen : &undecided;
        if (!mark_alike(layers, i, name_transform, marked))
            continue;
        strbuf_add_format(line, decided ? "%s%s in layers " : "%s%skeys of layers ", line->len ? "; " : "",
                          decided ? word : "");
        plan_add_layers(line, marked, (int)json_array_size(layers));
        strbuf_add_text(line, decided ? "" : ": chosen by measuring when the model is first loaded");
    }
    add_errors(&chosen, layers);
    explain_add_line(page, "transform", &chosen);
    explain_add_line(page, "transform", &undecided);
}

static void name_sinks(struct strbuf *out, const json_t *layer)
{
    if (explain_number(layer, "sink_pages"))
        strbuf_add_format(out, "%lld", explain_number(layer, "sink_pages"));
}

static void add_store(struct explain_page *page, const json_t *layers, bool *marked)
{
    const json_t *memory = json_object_get(page->plan, "memory");
    const char *note = explain_string(memory, "sink_note"), *scale = "";
    struct strbuf line = { 0 };
    size_t i;
    const json_t *layer;
    json_array_foreach (layers, i, layer)
        scale = *scale ? scale : explain_string(layer, "scale");
    if (*scale)
        strbuf_add_format(&line, "%s scales by %s", dtype_word(DTYPE_NVFP4),
                          strcmp(scale, "search") ? "largest magnitude" : "least square error");
    json_array_foreach (layers, i, layer) {
        long long pages = explain_number(layer, "sink_pages");
        if (!mark_alike(layers, i, name_sinks, marked))
            continue;
        strbuf_add_format(&line, "%s%lld sink page%s (the first of a sequence) in %s in layers ", line.len ? "; " : "",
                          pages, pages == 1 ? "" : "s", explain_string(memory, "sink_dtype"));
        plan_add_layers(&line, marked, (int)json_array_size(layers));
    }
    if (*note)
        strbuf_add_format(&line, "%sno sink pages in 16 bit: %s", line.len ? "; " : "", note);
    explain_add_line(page, "store", &line);
}

void explain_text_layers(struct explain_page *page)
{
    const json_t *layers = json_object_get(page->plan, "layers");
    bool *marked = memory_new(json_array_size(layers) + 1, sizeof *marked);
    add_table(page, layers, marked);
    add_origins(page, layers, marked);
    add_others(page, layers, marked);
    add_transforms(page, layers, marked);
    add_store(page, layers, marked);
    free(marked);
}
