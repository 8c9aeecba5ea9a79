// SPDX-License-Identifier: Apache-2.0
#include "plan/kv_flag.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "base/suggest.h"

static const char flag_name[] = "--kv-cache-dtype", skip_name[] = "--kv-cache-dtype-skip-layers";

enum { FORMAT_AUTO = DTYPE_COUNT }; // until the layer is known

// The words a user may type.
static const char *const words[] = { "auto", "fp8",
#define WORD_IF_NONE(word)
#define WORD_IF_W(word)
#define WORD_IF_KV(word) word,
#define WORD_IF_LATENT(word) word,
#define WORD_IF_W_KV(word) word,
#define X(id, word, use, ...) WORD_IF_##use(word)
                                     DTYPES(X)
#undef X
};

static bool parse_word(struct bytes word, enum dtype *out, struct error *err)
{
    if (bytes_equal(word, bytes_of("auto")))
        return *out = (enum dtype)FORMAT_AUTO, true;
    if (dtype_from_kv_word(word, out))
        return true;
    const char *reason = dtype_kv_word_refusal(word);
    if (reason)
        return fail(err, "%s %.*s: %s", flag_name, (int)word.len, word.data, reason);
    const char *near = suggest(word, words, sizeof words / sizeof *words);
    struct strbuf list = { 0 };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        strbuf_add_format(&list, " %s", words[i]);
    fail_usage(err, "%s: \"%.*s\" is not a cache format%s%s%s; there are%s", flag_name, (int)word.len, word.data,
               near ? ", did you mean " : "", near ? near : "", near ? "?" : "", list.data);
    strbuf_free(&list);
    return false;
}

static bool parse_formats(struct bytes text, struct kv_formats *out, struct error *err)
{
    const char *slash = memchr(text.data, '/', text.len);
    size_t k_len = slash ? (size_t)(slash - text.data) : text.len;
    struct bytes k = { text.data, k_len };
    struct bytes v = slash ? (struct bytes){ slash + 1, text.len - k_len - 1 } : k;
    return parse_word(k, &out->k, err) && parse_word(v, &out->v, err);
}

// A layer's index at the start of *text, which moves past it.
static bool parse_index(struct bytes *text, int *out)
{
    size_t digits = 0;
    int value = 0;
    while (digits < text->len && digits < 9 && text->data[digits] >= '0' && text->data[digits] <= '9')
        value = value * 10 + (text->data[digits++] - '0');
    *text = (struct bytes){ text->data + digits, text->len - digits };
    *out = value;
    return digits > 0;
}

static bool parse_range(const char *name, struct bytes range, int layers, int *first, int *last, struct error *err)
{
    struct bytes rest = range;
    bool ok = parse_index(&rest, first);
    *last = *first;
    if (ok && rest.len && rest.data[0] == '-') {
        rest = (struct bytes){ rest.data + 1, rest.len - 1 };
        *last = layers - 1;
        if (rest.len)
            ok = parse_index(&rest, last);
    }
    if (!ok || rest.len)
        return fail_usage(err, "%s: \"%.*s\" is not a range of layers; write 7, 4-9 or 4-", name, (int)range.len,
                          range.data);
    if (*first >= layers || *last >= layers)
        return fail_usage(err, "%s: \"%.*s\" goes past the model's layers, which are 0 to %d", name, (int)range.len,
                          range.data, layers - 1);
    if (*first > *last)
        return fail_usage(err, "%s: \"%.*s\" is empty; the lower layer comes first", name, (int)range.len, range.data);
    return true;
}

// One RANGE:FORMAT item. `named` remembers which layers an item has named.
static bool parse_item(struct bytes item, int layers, struct kv_formats *out, bool *named, struct error *err)
{
    const char *colon = memchr(item.data, ':', item.len);
    if (!colon)
        return fail_usage(err,
                          "%s: \"%.*s\" lacks its layers; with several formats write RANGE:FORMAT, as in "
                          "0-3:bfloat16,4-:nvfp4",
                          flag_name, (int)item.len, item.data);
    size_t range_len = (size_t)(colon - item.data);
    int first, last;
    struct kv_formats formats;
    if (!parse_range(flag_name, (struct bytes){ item.data, range_len }, layers, &first, &last, err)
        || !parse_formats((struct bytes){ colon + 1, item.len - range_len - 1 }, &formats, err))
        return false;
    for (int layer = first; layer <= last; layer++) {
        if (named[layer])
            return fail_usage(err, "%s: layer %d is named twice", flag_name, layer);
        named[layer] = true;
        out[layer] = formats;
    }
    return true;
}

static bool check_all_named(const bool *named, const bool *cached, int layers, struct error *err)
{
    struct strbuf missing = { 0 };
    for (int first = 0; first < layers; first++) {
        if (named[first] || !cached[first])
            continue;
        int last = first;
        while (last + 1 < layers && !named[last + 1] && cached[last + 1])
            last++;
        strbuf_add_format(&missing, first == last ? "%s%d" : "%s%d-%d", missing.len ? ", " : "", first, last);
        first = last;
    }
    bool ok = !missing.len || fail_usage(err, "%s: no format is given for layers %s", flag_name, missing.data);
    strbuf_free(&missing);
    return ok;
}

static bool parse_items(struct bytes rest, int layers, const bool *cached, struct kv_formats *out, struct error *err)
{
    bool *named = memory_new((size_t)layers, sizeof *named), ok = true;
    while (ok && rest.data) {
        const char *comma = memchr(rest.data, ',', rest.len);
        struct bytes item = { rest.data, comma ? (size_t)(comma - rest.data) : rest.len };
        ok = parse_item(item, layers, out, named, err);
        rest = comma ? (struct bytes){ comma + 1, rest.len - item.len - 1 } : (struct bytes){ 0 };
    }
    ok = ok && check_all_named(named, cached, layers, err);
    free(named);
    return ok;
}

bool kv_flag_parse(const char *flag, int layers, const enum dtype *automatic, const bool *cached,
                   struct kv_formats *out, struct error *err)
{
    if (strpbrk(flag, ":,")) {
        if (!parse_items(bytes_of(flag), layers, cached, out, err))
            return false;
    } else {
        if (!parse_formats(bytes_of(flag), &out[0], err))
            return false;
        for (int layer = 1; layer < layers; layer++)
            out[layer] = out[0];
    }
    for (int layer = 0; layer < layers; layer++) {
        out[layer].k = out[layer].k == (enum dtype)FORMAT_AUTO ? automatic[layer] : out[layer].k;
        out[layer].v = out[layer].v == (enum dtype)FORMAT_AUTO ? automatic[layer] : out[layer].v;
    }
    return true;
}

static bool skip_windows(int layers, const bool *windowed, bool *skipped, struct error *err)
{
    bool any = false;
    for (int layer = 0; layer < layers; layer++) {
        skipped[layer] |= windowed[layer];
        any |= windowed[layer];
    }
    return any || fail_usage(err, "%s sliding_window: no layer of this model has a window", skip_name);
}

bool kv_skip_parse(const char *list, int layers, const bool *windowed, bool *skipped, struct error *err)
{
    for (const char *at = list ? list + strspn(list, " ,") : ""; *at; at += strspn(at, " ,")) {
        struct bytes word = { at, strcspn(at, " ,") };
        int first, last;
        at += word.len;
        if (bytes_equal(word, bytes_of("sliding_window"))) {
            if (!skip_windows(layers, windowed, skipped, err))
                return false;
            continue;
        }
        if (word.data[0] < '0' || word.data[0] > '9')
            return fail_usage(err, "%s: \"%.*s\" is neither a layer, a range of layers nor sliding_window", skip_name,
                              (int)word.len, word.data);
        if (!parse_range(skip_name, word, layers, &first, &last, err))
            return false;
        for (int layer = first; layer <= last; layer++)
            skipped[layer] = true;
    }
    return true;
}
