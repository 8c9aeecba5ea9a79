// SPDX-License-Identifier: Apache-2.0
// plan/explain_text.c: the text of a plan for people, rendered from its JSON: lines of at most 80 columns with a title
// in the first ten.
#include <string.h>

#include "plan/explain_parts.h"

const char *explain_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

long long explain_number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

void explain_add_size(struct strbuf *out, double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof *units)
        bytes /= 1024, unit++;
    strbuf_add_format(out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

void explain_add_words(struct strbuf *out, const json_t *words)
{
    size_t i;
    const json_t *word;
    json_array_foreach (words, i, word)
        strbuf_add_format(out, "%s%s", i ? " " : "", json_string_value(word));
}

// How much of a text fits into a row: up to the last space in it, or a whole word that is longer.
static size_t row_of(const char *text, size_t room)
{
    size_t end = strlen(text);
    if (end <= room)
        return end;
    for (end = room; end && text[end] != ' ';)
        end--;
    return end ? end : strcspn(text, " ");
}

void explain_add_line(struct explain_page *page, const char *title, struct strbuf *text)
{
    const char *rest = strbuf_text(text);
    while (*rest) {
        size_t row = row_of(rest, EXPLAIN_WIDTH - EXPLAIN_INDENT);
        strbuf_add_format(page->out, "%-*s%.*s\n", EXPLAIN_INDENT, title, (int)row, rest);
        rest += row + (rest[row] == ' ');
        title = "";
    }
    strbuf_free(text);
}

// ---- the model and its device ----

static void add_model(struct explain_page *page)
{
    const json_t *model = json_object_get(page->plan, "model");
    struct strbuf line = { 0 };
    strbuf_add_format(&line, "%s: %lld layers, vocabulary %lld, context length %lld%s",
                      explain_string(page->plan, "architecture"), explain_number(model, "layers"),
                      explain_number(model, "vocabulary"), explain_number(model, "context"),
                      json_is_true(json_object_get(page->plan, "servable")) ? "" : "; config alone, no weights to run");
    explain_add_line(page, "model", &line);
}

// "9 query heads, 3 KV heads (GQA 3:1), head size 64", with the usual name of how query heads share KV heads.
static void add_heads(struct explain_page *page)
{
    const json_t *model = json_object_get(page->plan, "model");
    long long heads = explain_number(model, "heads"), kv_heads = explain_number(model, "kv_heads");
    long long size = explain_number(model, "head_size"), latent = explain_number(model, "latent");
    struct strbuf line = { 0 };
    strbuf_add_format(&line, "%lld query heads, ", heads);
    if (latent)
        strbuf_add_format(&line, "MLA latents of %lld channels and %lld rotary ones", latent, size - latent);
    else if (kv_heads == heads)
        strbuf_add_format(&line, "as many KV heads (MHA), head size %lld", size);
    else if (kv_heads == 1)
        strbuf_add_format(&line, "1 KV head (MQA), head size %lld", size);
    else
        strbuf_add_format(&line, "%lld KV heads (GQA %lld:1), head size %lld", kv_heads,
                          kv_heads ? heads / kv_heads : 0, size);
    explain_add_line(page, "heads", &line);
}

static void add_device(struct explain_page *page)
{
    const json_t *device = json_object_get(page->plan, "hardware");
    const char *name = explain_string(device, "name"), *note = explain_string(device, "note");
    struct strbuf line = { 0 };
    strbuf_add_text(&line, explain_string(page->plan, "device"));
    strbuf_add_text(&line, json_is_true(json_object_get(device, "imagined")) ? " (imagined)" : "");
    if (*name) {
        strbuf_add_format(&line, ": %s, %lld %s", name, explain_number(device, "units"),
                          explain_string(device, "unit"));
        strbuf_add_text(&line, ", ");
        explain_add_size(&line, (double)explain_number(device, "memory"));
    }
    if (json_is_string(json_object_get(device, "features")))
        strbuf_add_format(&line, ", %s", explain_string(device, "features"));
    strbuf_add_format(&line, *note ? "; %s" : "%s", note);
    explain_add_line(page, "device", &line);
}

// An imagined GPU is planned with what the sources have for it, whatever this build holds.
static void add_missing_code(struct explain_page *page)
{
    const char *code = explain_string(json_object_get(page->plan, "hardware"), "missing_code");
    if (*code)
        strbuf_add_format(page->out, "code      this build holds no %s code: build with -Dcuda-archs=%s to run it\n",
                          explain_string(page->plan, "device"), code);
}

// ---- the checkpoint ----

static void add_stored(struct explain_page *page)
{
    size_t i;
    const json_t *stored;
    json_array_foreach (json_object_get(json_object_get(page->plan, "weights"), "stored"), i, stored) {
        const char *why = explain_string(stored, "why");
        struct strbuf line = { 0 };
        strbuf_add_format(&line, "%s, read as %s%s%s", explain_string(stored, "form"),
                          explain_string(stored, "read_as"), *why ? ": " : "", why);
        explain_add_line(page, "stored", &line);
    }
}

static void add_checkpoint(struct explain_page *page)
{
    const json_t *checkpoint = json_object_get(page->plan, "checkpoint");
    long long scales = explain_number(checkpoint, "cache_scales");
    long long idle = explain_number(checkpoint, "cache_scales_unused");
    const char *unused = explain_string(checkpoint, "unused_tensors");
    struct strbuf line = { 0 };
    add_stored(page);
    if (scales)
        strbuf_add_format(&line, "of the cache for %lld layers in the checkpoint", scales);
    if (idle)
        strbuf_add_format(&line, ", unused by %lld whose formats have none", idle);
    explain_add_line(page, "scales", &line);
    strbuf_add_format(&line, *unused ? "tensors: %s" : "%s", unused);
    explain_add_line(page, "unused", &line);
    size_t i;
    const json_t *warning;
    json_array_foreach (json_object_get(checkpoint, "warnings"), i, warning) {
        strbuf_add_text(&line, json_string_value(warning));
        explain_add_line(page, "warning", &line);
    }
}

// ---- what to do next ----

static void add_next(struct explain_page *page)
{
    const json_t *next = json_object_get(page->plan, "next"), *flags = json_object_get(next, "flags");
    struct strbuf line = { 0 };
    if (!flags)
        return;
    explain_add_words(&line, flags);
    strbuf_add_format(&line, " would fit %.1f x the tokens at KLD %.3f (of SmolLM2-135M; nibble eval measures yours)",
                      json_real_value(json_object_get(next, "tokens_factor")),
                      json_real_value(json_object_get(next, "divergence")));
    explain_add_line(page, "next", &line);
}

void explain_full(const struct plan *plan, struct explain_style style, struct strbuf *out)
{
    struct explain_page page = { out, style, explain_root(plan) };
    add_model(&page);
    add_heads(&page);
    add_device(&page);
    explain_text_layers(&page);
    explain_text_kernels(&page);
    explain_text_memory(&page);
    add_checkpoint(&page);
    add_missing_code(&page);
    add_next(&page);
    json_decref(page.plan);
}
